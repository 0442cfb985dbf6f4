"""The paper, item by item: what each needs, what it computes, what it draws."""
