// The family tree: selection, keys, zoom. The figures come drawn; this adds what is selected.

const TREE_LINEAGE = 1; // place of the lineage's trace; the last trace marks the selection
const TREE_CONFIG = { scrollZoom: true, modeBarButtons: [["toImage", "zoom2d", "pan2d"]] };
let arrangement = "tree";
let view = 0; // another one puts the whole tree back into sight

function placesOf(spec) {
  const places = new Map();
  for (const trace of spec.data) {
    (trace.customdata || []).forEach((slot, i) => places.set(slot, [trace.x[i], trace.y[i]]));
  }
  return places;
}

function lineage(slot) {
  const slots = new Set();
  const waiting = [slot];
  while (waiting.length) {
    const next = waiting.pop();
    if (slots.has(next) || !bySlot.has(next)) continue;
    slots.add(next);
    waiting.push(...bySlot.get(next).parents.map((parent) => parent.slot));
  }
  return [...slots];
}

function treeSpec() {
  const spec = figures[arrangement];
  if (selected === null) return spec;
  const places = placesOf(spec);
  const [x, y] = [[], []];
  for (const slot of lineage(selected)) {
    for (const parent of bySlot.get(slot).parents) {
      const [from, to] = [places.get(parent.slot), places.get(slot)];
      x.push(from[0], to[0], null);
      y.push(from[1], to[1], null);
    }
  }
  const data = [...spec.data];
  const name = `lineage of ${bySlot.get(selected).id.replace(/[<>&]/g, "")}`;
  data[TREE_LINEAGE] = { ...data[TREE_LINEAGE], x, y, name };
  const [atX, atY] = places.get(selected);
  data[data.length - 1] = { ...data[data.length - 1], x: [atX], y: [atY] };
  return { ...spec, data };
}

function drawTree() {
  const { data, layout } = treeSpec();
  // What the reader has zoomed and moved stays while this text stays.
  const uirevision = `${arrangement} ${view}`;
  draw(byId("tree"), { data, layout: { ...layout, uirevision } }, TREE_CONFIG);
}

function select(slot) {
  selected = slot;
  if (plotly && drawn.has("tree")) drawTree();
  byId("tree-status").textContent = described(bySlot.get(slot));
}

function zoomTree(factor) {
  const { xaxis, yaxis } = byId("tree")._fullLayout;
  const places = placesOf(figures[arrangement]);
  const centre = selected === null ? null : places.get(selected);
  const range = (axis, at) => {
    const [a, b] = axis.range;
    const middle = at === undefined ? (a + b) / 2 : at;
    const half = ((b - a) / 2) * factor;
    return [middle - half, middle + half];
  };
  plotly.relayout("tree", {
    "xaxis.range": range(xaxis, centre ? centre[0] : undefined),
    "yaxis.range": range(yaxis, centre ? centre[1] : undefined),
  });
}

function treeKey(event) {
  if (event.target !== byId("tree-keys")) return; // a button within
  const order = details.candidates.map((item) => item.slot);
  const current = bySlot.get(selected);
  const at = order.indexOf(selected);
  const targets = {
    ArrowRight: order[Math.min(at + 1, order.length - 1)],
    ArrowLeft: order[Math.max(at - 1, 0)],
    ArrowUp: current && current.parents.length ? current.parents[0].slot : undefined,
    ArrowDown: current && current.children.length ? current.children[0].slot : undefined,
    Home: order[0],
    End: order[order.length - 1],
  };
  if (event.key === "Enter" && selected !== null) openCandidate(selected, byId("tree-keys"));
  else if (event.key === "+" || event.key === "=") zoomTree(0.7);
  else if (event.key === "-") zoomTree(1 / 0.7);
  else if (event.key in targets) {
    if (targets[event.key] !== undefined) select(targets[event.key]);
  } else return;
  event.preventDefault();
}

function startTree() {
  const keys = byId("tree-keys");
  if (!keys) return;
  keys.addEventListener("keydown", treeKey);
  byId("tree-in").addEventListener("click", () => zoomTree(0.7));
  byId("tree-out").addEventListener("click", () => zoomTree(1 / 0.7));
  byId("tree-reset").addEventListener("click", () => { view += 1; drawTree(); });
  byId("tree-arrangement").addEventListener("change", (event) => {
    arrangement = event.target.value;
    drawTree();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !byId("details").hidden) closeDetails();
  });
}
