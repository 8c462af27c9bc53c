"use strict";
// Filters of the leaderboard, the lineage trees, the dialog of one kernel, labels of marks under the pointer.
(() => {
  const $ = (id) => document.getElementById(id);
  const trees = JSON.parse($("trees").textContent);
  const nodes = new Map();

  function make(tag, attributes = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children.filter((child) => child !== null && child !== undefined));
    return element;
  }

  // ---------------------------------------------------------------- filters
  const filters = ["task", "device", "evidence"];
  function filter() {
    const wanted = $("f-text").value.toLowerCase();
    let shown = 0;
    for (const row of document.querySelectorAll(".board tbody tr")) {
      const fits = filters.every((name) => !$(`f-${name}`).value || row.dataset[name] === $(`f-${name}`).value);
      row.hidden = !(fits && (!wanted || row.textContent.toLowerCase().includes(wanted)));
      shown += !row.hidden;
    }
    for (const section of document.querySelectorAll("section.task")) {
      const [task, device] = [section.querySelector("h2").firstChild.textContent.trim(), section.querySelector("h2 .muted").textContent];
      section.hidden = Boolean(($("f-task").value && $("f-task").value !== task) || ($("f-device").value && $("f-device").value !== device));
    }
    $("f-count").textContent = `${shown} row${shown === 1 ? "" : "s"}`;
  }
  if ($("f-text")) {
    for (const id of ["text", ...filters]) $(`f-${id}`).addEventListener("input", filter);
    document.querySelector(".filters").addEventListener("submit", (event) => event.preventDefault());
  }

  // ---------------------------------------------------------------- trees
  const LEVELS = 2; // open at first, and the way to the best kernel
  function line(node) {
    const element = make("span", { class: "line" }, make("button", { type: "button", class: "kernel", "data-kernel": node.kernel }, node.kernel.slice(0, 8)), node.edit || "seed");
    if (node.speedup) {
      element.append(make("span", { class: node.gain > 1.01 ? "gain up" : "gain" }, `${node.speedup.toFixed(2)}×`));
    } else {
      element.append(make("span", { class: "refused" }, node.why ? node.why.split(":")[0] : "not accepted"));
    }
    return element;
  }
  function branch(node, below, open, depth) {
    const children = below.get(node.kernel) || [];
    if (!children.length) return make("li", {}, line(node));
    const shown = depth < LEVELS || open.has(node.kernel);
    const details = make("details", shown ? { open: "" } : {}, make("summary", {}, line(node)));
    const fill = () => details.childElementCount > 1 || details.append(make("ul", {}, ...children.map((child) => branch(child, below, open, depth + 1))));
    if (shown) fill();
    else details.addEventListener("toggle", fill);
    return make("li", {}, details);
  }
  function plant(place) {
    const tree = trees[place.dataset.tree];
    const below = new Map();
    for (const node of tree.nodes) {
      node.evidence = tree.evidence;
      if (node.parent) below.set(node.parent, [...(below.get(node.parent) || []), node]);
    }
    for (const children of below.values()) children.sort((a, b) => (b.speedup || 0) - (a.speedup || 0) || a.first - b.first);
    const open = new Set();
    let at = tree.nodes.reduce((best, node) => ((node.speedup || 0) > (best?.speedup || 0) ? node : best), undefined);
    for (const above = new Map(tree.nodes.map((node) => [node.kernel, node])); at; at = above.get(at.parent)) open.add(at.kernel);
    place.append(make("ul", {}, ...tree.nodes.filter((node) => !node.parent).map((node) => branch(node, below, open, 0))));
  }
  for (const tree of Object.values(trees)) for (const node of tree.nodes) nodes.set(node.kernel, node);
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting) { seen.unobserve(entry.target); plant(entry.target); }
  }, { rootMargin: "600px" });
  for (const place of document.querySelectorAll(".tree")) seen.observe(place);

  // ---------------------------------------------------------------- one kernel
  function diff(text) {
    const kind = (line) => (/^(---|\+\+\+|@@)/.test(line) ? "at" : line[0] === "+" ? "add" : line[0] === "-" ? "del" : "");
    return make("pre", { class: "diff", tabindex: "0", "aria-label": "what changed from its parent" },
      ...text.trimEnd().split("\n").map((line) => make("span", { class: kind(line) }, line || " ")));
  }
  function about(digest) {
    const node = nodes.get(digest);
    if (!node) return [make("h3", { id: "node-title" }, digest.slice(0, 8)), make("p", {}, "Not in a shown lineage: kernelsearch lineage ", make("code", {}, digest.slice(0, 8)))];
    const facts = make("dl");
    const fact = (name, value) => value && facts.append(make("dt", {}, name), make("dd", {}, value));
    fact("kernel", node.kernel);
    fact("proposed by", node.edit ? `${node.proposer || "a proposer"}, trial ${node.first}` : "the task");
    fact("trials", `${node.trials}, ${node.accepted} accepted`);
    if (node.speedup) fact("best", `${node.speedup.toFixed(3)}× the seed (${node.evidence}), trial ${node.trial}` + (node.gain ? `; ${node.gain.toFixed(3)}× its parent, each at its own best config` : ""));
    if (node.gain_at_config) fact("step", `${node.gain_at_config.toFixed(3)}× its parent, both at the best kernel's config`);
    if (node.config) fact("config", Object.entries(node.config).map(([name, value]) => `${name}=${value}`).join(" "));
    fact("refused", node.why);
    const hints = node.hints.map(([head, why, advice]) => make("li", {}, make("strong", {}, head), `. ${advice} `,
      make("span", { class: "muted" }, why)));
    return [make("h3", { id: "node-title" }, node.edit || "seed"), node.rationale ? make("p", {}, node.rationale) : null, facts,
      hints.length ? make("h4", {}, "Hints") : null, hints.length ? make("ul", {}, ...hints) : null,
      node.diff ? diff(node.diff) : node.diff === null ? make("p", { class: "muted" }, "Its diff was left out to keep the page small.") : null,
    ].filter(Boolean);
  }
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-kernel]");
    if (!button) return;
    event.preventDefault();
    $("node-body").replaceChildren(...about(button.dataset.kernel));
    $("node").showModal();
  });
  $("node").addEventListener("click", (event) => event.target === $("node") && $("node").close());

  // ---------------------------------------------------------------- labels of marks
  document.addEventListener("pointermove", (event) => {
    const mark = event.target.closest && event.target.closest("figure svg [aria-roledescription][aria-label]");
    $("tip").hidden = !mark;
    if (!mark) return;
    $("tip").textContent = mark.getAttribute("aria-label");
    const box = $("tip").getBoundingClientRect();
    $("tip").style.left = `${Math.min(event.clientX + 12, innerWidth - box.width - 8)}px`;
    $("tip").style.top = `${Math.max(8, event.clientY - box.height - 10)}px`;
  });
})();
