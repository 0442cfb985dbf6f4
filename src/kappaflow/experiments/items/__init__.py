"""One file per item of the paper, `NAME_item.py`, with its `ITEM`; a new file here is a new item."""
