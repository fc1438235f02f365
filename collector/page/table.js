// Tables from rows: one column list per table, sortable where all rows are here. Text is set as text, never as markup.

/**
 * A column: `title`; `key` of the row for sorting; `show(row)` giving text or an element; `number` to align right.
 */
export class Table {
  constructor(place, columns, { caption, empty, sortable = true, headed = true }) {
    this.place = place;
    this.columns = columns;
    this.caption = caption;
    this.empty = empty;
    this.sortable = sortable;
    this.headed = headed;
    this.rows = null;
    this.order = null;
    this.waiting = false;
    place.addEventListener("focusout", (event) => {
      if (this.waiting && !place.contains(event.relatedTarget)) this.draw();
    });
  }

  /** Show these rows; a table that somebody is in with the keyboard waits until they leave it. */
  fill(rows) {
    if (rows === this.rows) return;
    this.rows = rows;
    this.waiting = this.place.contains(document.activeElement) && this.place !== document.activeElement;
    if (!this.waiting) this.draw();
  }

  sortBy(column) {
    const down = this.order?.column === column ? !this.order.down : Boolean(column.number);
    this.order = { column, down };
    this.draw();
    this.place.querySelector(`[data-column="${this.columns.indexOf(column)}"]`)?.focus();
  }

  sorted() {
    if (!this.order) return this.rows;
    const { column, down } = this.order;
    const sign = down ? -1 : 1;
    // What is unknown stands at the end, whichever way the rest is ordered.
    return [...this.rows].sort((a, b) => {
      const [x, y] = [a[column.key], b[column.key]];
      if (x === y) return 0;
      if (x === null || x === undefined) return 1;
      if (y === null || y === undefined) return -1;
      return (x < y ? -1 : 1) * sign;
    });
  }

  draw() {
    this.waiting = false;
    if (!this.rows?.length) {
      this.place.replaceChildren(element("p", { className: "none", textContent: this.empty }));
      return;
    }
    const table = element("table");
    table.append(element("caption", { textContent: this.caption, className: "hidden" }), this.head());
    const body = element("tbody");
    for (const row of this.sorted()) body.append(this.line(row));
    table.append(body);
    this.place.replaceChildren(table);
  }

  head() {
    const line = element("tr");
    this.columns.forEach((column, index) => {
      const cell = element("th", { scope: "col", className: column.number ? "number" : "" });
      if (this.sortable && column.key) {
        const button = element("button", { type: "button", textContent: column.title });
        button.dataset.column = index;
        button.addEventListener("click", () => this.sortBy(column));
        if (this.order?.column === column) cell.setAttribute("aria-sort", this.order.down ? "descending" : "ascending");
        cell.append(button);
      } else {
        cell.textContent = column.title;
      }
      line.append(cell);
    });
    const head = element("thead");
    head.append(line);
    return head;
  }

  line(row) {
    const line = element("tr");
    this.columns.forEach((column, index) => {
      const heads = index === 0 && this.headed;
      const cell = element(heads ? "th" : "td", { className: column.number ? "number" : "" });
      if (heads) cell.scope = "row";
      cell.append(column.show(row) ?? "");
      line.append(cell);
    });
    return line;
  }
}

export function element(name, properties = {}) {
  return Object.assign(document.createElement(name), properties);
}
