// Tables that sort by a click on a heading. Numbers sort as numbers; what is none comes last.

function sortKey(text) {
  const cleaned = text.replace(/−/g, "-").replace(/,/g, "").replace(/^#/, "");
  const value = parseFloat(cleaned);
  return Number.isNaN(value) ? null : value;
}

function compareCells(first, second) {
  const [a, b] = [sortKey(first), sortKey(second)];
  if (a !== null && b !== null) return a - b;
  if (a !== null) return -1;
  if (b !== null) return 1;
  return first.localeCompare(second);
}

function startTables() {
  for (const table of document.querySelectorAll("table[data-sortable]")) {
    [...table.tHead.rows[0].cells].forEach((heading, column) => {
      const title = heading.textContent;
      heading.replaceChildren(element("button", { type: "button", on: { click: () => sortBy(table, column) } }, title));
    });
  }
}

function sortBy(table, column) {
  const headings = [...table.tHead.rows[0].cells];
  // Numbers are first looked for at their highest, words from a to z.
  const words = headings[column].classList.contains("text") || column === 0;
  const first = words ? "ascending" : "descending";
  const other = first === "ascending" ? "descending" : "ascending";
  const order = headings[column].getAttribute("aria-sort") === first ? other : first;
  headings.forEach((heading) => heading.removeAttribute("aria-sort"));
  headings[column].setAttribute("aria-sort", order);
  const rows = [...table.tBodies[0].rows];
  const text = new Map(rows.map((row) => [row, row.cells[column].textContent.trim()]));
  const missing = (row) => ["–", ""].includes(text.get(row)) || (!words && sortKey(text.get(row)) === null);
  const sign = order === "ascending" ? 1 : -1;
  rows.sort((a, b) => missing(a) - missing(b) || sign * compareCells(text.get(a), text.get(b)));
  table.tBodies[0].append(...rows);
}
