"use strict";
// A click on a head sorts; where a phone hides the heads, the menu above the table does the same.
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  const heads = [...table.tHead.querySelectorAll("th")];
  const value = (row, i) => row.cells[i].textContent.trim();
  const bar = document.createElement("div");
  const menu = document.createElement("select");
  const turn = document.createElement("button");
  const sort = (i, down) => {
    const rows = [...body.rows];
    rows.sort((a, b) => {
      const [x, y] = [value(a, i), value(b, i)];
      if (!x || !y) return x ? -1 : y ? 1 : 0;
      const [u, v] = [parseFloat(x), parseFloat(y)];
      const order = isNaN(u) || isNaN(v) ? x.localeCompare(y) : u - v;
      return down ? -order : order;
    });
    for (const head of heads) head.removeAttribute("aria-sort");
    heads[i].setAttribute("aria-sort", down ? "descending" : "ascending");
    menu.value = String(i);
    turn.textContent = down ? "falling \u25BE" : "rising \u25B4";
    body.append(...rows);
  };
  const falling = (i) => heads[i].getAttribute("aria-sort") === "descending";
  heads.forEach((head, i) => {
    head.tabIndex = 0;
    const again = () => sort(i, head.getAttribute("aria-sort") === "ascending");
    head.addEventListener("click", again);
    head.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") {
        event.preventDefault();
        again();
      }
    });
    menu.append(new Option(head.textContent.trim(), String(i)));
  });
  menu.prepend(new Option("as given", ""));
  menu.value = "";
  menu.setAttribute("aria-label", "sort the table by");
  turn.type = "button";
  turn.textContent = "rising \u25B4";
  const chosen = () => Number(menu.value);
  menu.addEventListener("change", () => menu.value && sort(chosen(), false));
  turn.addEventListener("click", () => menu.value && sort(chosen(), !falling(chosen())));
  bar.className = "sorts";
  bar.append("sorted by", menu, turn);
  table.parentElement.before(bar);
}
