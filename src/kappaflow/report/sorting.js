"use strict";
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  const value = (row, i) => row.cells[i].textContent.trim();
  table.tHead.querySelectorAll("th").forEach((head, i) => {
    head.tabIndex = 0;
    head.setAttribute("role", "button");
    const sort = () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      const rows = [...body.rows];
      rows.sort((a, b) => {
        const [x, y] = [value(a, i), value(b, i)];
        if (!x || !y) return x ? -1 : y ? 1 : 0;
        const [u, v] = [parseFloat(x), parseFloat(y)];
        const order = isNaN(u) || isNaN(v) ? x.localeCompare(y) : u - v;
        return down ? -order : order;
      });
      for (const other of table.tHead.querySelectorAll("th")) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      body.append(...rows);
    };
    head.addEventListener("click", sort);
    head.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") {
        event.preventDefault();
        sort();
      }
    });
  });
}
