"use strict";
// Filters, sorted tables, parts of kernels that are packed, labels of marks under the pointer, and the live page.
(() => {
  const $ = (id) => document.getElementById(id);
  const all = (selector, inside = document) => [...inside.querySelectorAll(selector)];

  // ---------------------------------------------------------------- filters
  const filters = ["task", "device", "evidence"];
  function filter() {
    if (!$("f-text")) return;
    const wanted = $("f-text").value.toLowerCase();
    const fits = (element, names) => names.every((name) => !$(`f-${name}`).value || element.dataset[name] === $(`f-${name}`).value);
    const rows = all(".board tbody tr");
    for (const row of rows) row.hidden = !fits(row, filters) || !row.textContent.toLowerCase().includes(wanted);
    for (const other of all("section.task, article.summary")) other.hidden = !fits(other, ["task", "device"]);
    const shown = rows.filter((row) => !row.hidden).length;
    $("f-count").textContent = `${shown} row${shown === 1 ? "" : "s"}`;
  }
  document.addEventListener("input", filter);
  document.addEventListener("submit", (event) => event.preventDefault());

  // ---------------------------------------------------------------- sorted tables
  function valueOf(row, column) {
    const text = row.cells[column].dataset.value || row.cells[column].textContent.trim();
    return Number.isNaN(parseFloat(text)) ? text : parseFloat(text);
  }
  function sort(table, column, down) {
    const compare = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b)));
    const rows = [...table.tBodies[0].rows].map((row) => [valueOf(row, column), row]);
    rows.sort(([a], [b]) => (down ? compare(b, a) : compare(a, b)));
    table.tBodies[0].append(...rows.map(([, row]) => row));
    for (const head of table.tHead.rows[0].cells) head.removeAttribute("aria-sort");
    table.tHead.rows[0].cells[column].setAttribute("aria-sort", down ? "descending" : "ascending");
  }
  function dress() {
    for (const head of all("table.sortable thead th")) {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
    }
  }
  document.addEventListener("click", (event) => {
    const head = event.target.closest && event.target.closest("table.sortable thead th");
    if (!head) return;
    const number = head.classList.contains("n");
    sort(head.closest("table"), head.cellIndex, number ? head.ariaSort !== "descending" : head.ariaSort === "ascending");
  });

  // ---------------------------------------------------------------- parts of kernels
  let packed = null;
  async function unpack() {
    const bytes = Uint8Array.from(atob($("packed").textContent), (letter) => letter.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
  }
  async function bring(id) {
    if ($(id)) return;
    packed = packed || (await unpack());
    const place = $(`parts-${id.replace(/-[^-]*$/, "")}`);
    if (!packed[id] || !place || $(id)) return;
    const template = document.createElement("template");
    template.innerHTML = packed[id]; // escaped where it was written; the policy of the page runs no other script
    place.append(template.content);
  }
  async function visit() {
    const id = decodeURIComponent(location.hash.slice(1));
    if (id) await bring(id);
    if (!$(id)) return;
    for (let at = $(id); at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
    $(id).scrollIntoView();
    if ($(id).tagName === "DETAILS") $(id).querySelector("summary").focus({ preventScroll: true });
  }
  addEventListener("hashchange", visit);

  // ---------------------------------------------------------------- marks under the pointer
  const mark = (event) => event.target.closest && event.target.closest("figure svg [aria-roledescription][aria-label]");
  document.addEventListener("pointermove", (event) => {
    const under = mark(event);
    $("tip").hidden = !under;
    if (!under) return;
    $("tip").textContent = under.getAttribute("aria-label");
    const box = $("tip").getBoundingClientRect();
    $("tip").style.left = `${Math.max(8, Math.min(event.clientX + 12, innerWidth - box.width - 8))}px`;
    $("tip").style.top = `${Math.max(8, event.clientY - box.height - 10)}px`;
  });
  document.addEventListener("click", (event) => {
    const under = mark(event);
    const kernel = under && /^trial .* ([0-9a-f]{8})[ :]/.exec(under.getAttribute("aria-label"));
    if (kernel) location.hash = `${under.closest("section.task").id}-${kernel[1]}`;
  });
  addEventListener("beforeprint", () => all("details").forEach((one) => { one.open = true; }));

  // ---------------------------------------------------------------- live
  let version = null;
  async function follow() {
    try {
      const now = await (await fetch("version")).text();
      if (version !== null && now !== version) await renew();
      version = now;
      document.body.classList.remove("lost");
    } catch {
      document.body.classList.add("lost");
    }
    setTimeout(follow, 2000);
  }
  const keyOf = (one) => [one.closest("section").id, one.closest(".run")?.dataset.run, one.querySelector(":scope > summary a")?.hash].join();
  async function renew() {
    const page = new DOMParser().parseFromString(await (await fetch("./")).text(), "text/html");
    const parts = all("details.part").map((one) => one.id);
    const open = new Map(all("details").map((one) => [keyOf(one), one.open]));
    const values = all(".filters input, .filters select").map((one) => [one.id, one.value]);
    const sorted = all("table.sortable").map((table) => table.querySelector("[aria-sort]")).map((head) => head && [head.cellIndex, head.ariaSort === "descending"]);
    const focus = document.activeElement && document.activeElement.id;
    const above = all("main [id]").filter((one) => one.tagName !== "SCRIPT" && one.getBoundingClientRect().top <= 0).pop();
    const top = above && above.getBoundingClientRect().top;
    document.querySelector("main").replaceWith(page.querySelector("main"));
    $("state").textContent = page.getElementById("state").textContent;
    packed = null;
    for (const id of parts) await bring(id);
    dress();
    for (const [id, value] of values) if ($(id)) $(id).value = value;
    for (const one of all("details")) if (open.has(keyOf(one))) one.open = open.get(keyOf(one));
    all("table.sortable").forEach((table, number) => sorted[number] && sort(table, ...sorted[number]));
    filter();
    if (focus && $(focus)) $(focus).focus({ preventScroll: true });
    if (above && above.id && $(above.id)) scrollBy(0, $(above.id).getBoundingClientRect().top - top);
  }

  dress();
  visit();
  if ("live" in document.documentElement.dataset) follow();
})();
