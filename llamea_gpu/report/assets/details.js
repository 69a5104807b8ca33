// What is known of one candidate: scores, convergence, program, diffs, prompts.

let details = null;
let bySlot = new Map();
let selected = null;
let openedFrom = null;
let detailPlots = [];

const fixed = (value, digits = 3) =>
  value === null || value === undefined ? "–" : value.toFixed(digits).replace("-", "−");
const percent = (value) => (value === null || value === undefined ? "–" : `${(100 * value).toFixed(1)} %`);
const textOf = (numbers) => numbers.map((number) => details.lines[number]).join("\n");
const linesOf = (numbers) => numbers.map((number) => details.lines[number]);

function startDetails(document_) {
  details = document_;
  if (!details) return;
  details.candidates.sort((a, b) => a.slot - b.slot);
  bySlot = new Map(details.candidates.map((candidate) => [candidate.slot, candidate]));
  for (const candidate of details.candidates) candidate.children = [];
  for (const candidate of details.candidates) {
    for (const parent of candidate.parents) bySlot.get(parent.slot).children.push(candidate);
  }
}

function verdict(candidate) {
  if (candidate.p !== null) return `${details.measure} ${fixed(candidate.p)} ± ${fixed(candidate.error)}`;
  return candidate.status === "partial" ? "stopped early" : `failed: ${candidate.kind || "unknown"}`;
}

function described(candidate) {
  const parents = candidate.parents.map((parent) => parent.id).join(" and ");
  return `${candidate.id}, ${candidate.operator}, ${verdict(candidate)}${parents ? `, from ${parents}` : ""}`;
}

// `origin` is where the focus returns to.
function openCandidate(slot, origin = null) {
  const candidate = bySlot.get(slot);
  const host = byId("details");
  if (!candidate || !host) return;
  openTab("tree");
  if (origin && !host.contains(origin)) openedFrom = origin;
  select(slot);
  setAddress(`candidate=${slot}`);
  host.hidden = false; // charts take the width of what is in sight
  renderDetails(host, candidate);
  byId("details-title").focus({ preventScroll: true });
  host.scrollIntoView({ block: "start" });
}

function closeDetails() {
  byId("details").hidden = true;
  setAddress("tree");
  const back = openedFrom && openedFrom.isConnected ? openedFrom : byId("tree-keys");
  const section = back.closest(".panel");
  if (section) openTab(section.dataset.key);
  (back.matches("a, button, [tabindex]") ? back : byId("tree-keys")).focus();
}

function relatives(label, list) {
  if (!list.length) return null;
  const links = list.flatMap((item, place) => [
    place ? ", " : "",
    element("a", { href: `#candidate=${item.slot}` }, item.id),
  ]);
  return element("span", {}, `${label}: `, ...links, "  ");
}

function renderDetails(host, candidate) {
  const order = details.candidates.map((item) => item.slot);
  const at = order.indexOf(candidate.slot);
  const step = (label, slot) => element("button", {
    type: "button", disabled: slot === undefined, on: { click: () => openCandidate(slot) },
  }, label);
  const title = element("h3", { id: "details-title", tabindex: "-1" },
    `${candidate.id} `, element("span", { class: "badge" }, candidate.operator), " ",
    element("span", { class: "badge" }, verdict(candidate)));
  host.replaceChildren(
    element("header", {}, title, element("div", { class: "buttons" },
      step("← previous", order[at - 1]), step("next →", order[at + 1]),
      element("button", { type: "button", on: { click: closeDetails } }, "Close"))),
    candidate.idea ? element("p", { class: "idea" }, candidate.idea) : "",
    candidate.message ? element("p", { class: "message" }, candidate.message) : "",
    element("p", { class: "family" },
      relatives("parents", candidate.parents), relatives("children", candidate.children),
      candidate.model ? `model: ${candidate.model}` : null),
  );
  const parts = detailParts(candidate);
  if (!parts.length) return;
  const inner = element("div", {}, ...parts.map((part) => part.panel));
  host.append(inner);
  detailPlots = [];
  const tabs = makeTabs(inner, `Details of ${candidate.id}`, parts, (key) => {
    remember("detail", key);
    if (key === "convergence") drawConvergence(candidate);
  });
  tabs.open(tabs.has(remembered("detail")) ? remembered("detail") : parts[0].key);
}

function part(key, title, ...content) {
  return { key, title, panel: element("div", { id: `details-${key}` }, ...content) };
}

function detailParts(candidate) {
  const parts = [];
  if (candidate.spaces.length) {
    const feedback = candidate.feedback.map((sentence) => element("li", {}, sentence));
    parts.push(part("scores", "Scores and feedback", scoreTable(candidate),
      feedback.length ? element("h4", {}, "What a model that builds on it is told") : null,
      feedback.length ? element("ul", {}, ...feedback) : null));
  }
  if (Object.keys(candidate.curves).length && plotly) {
    const hosts = Object.keys(candidate.curves).map((space) => element("div", {},
      element("h4", {}, space), element("div", { "data-space": space })));
    parts.push(part("convergence", "Convergence",
      element("p", { class: "help" }, "Median over repeats of how far the best found so far lies above the best known in this run, in percent (logarithmic), against the share of simulated time. Dashed: parents."),
      element("div", { class: "small-plots" }, ...hosts)));
  }
  if (candidate.source) {
    const source = textOf(candidate.source);
    const values = candidate.hyperparameters.map(([name, value]) => `${name}=${value}`).join(", ");
    parts.push(part("code", "Program",
      element("p", { class: "help" }, `${candidate.class}(${values}), ${candidate.length} lines`),
      codeBlock(source, `Program of ${candidate.id}`)));
  }
  const diffs = candidate.parents.filter((parent) => parent.diff).map((parent) => diffOf(candidate, parent));
  if (diffs.length) parts.push(part("diff", "Diff", ...diffs.flat()));
  if (candidate.calls.length) parts.push(part("prompts", "Prompts and answers", ...candidate.calls.map(callBlock)));
  return parts;
}

function diffOf(candidate, parent) {
  const own = linesOf(candidate.source);
  const parentLines = linesOf(bySlot.get(parent.slot).source);
  const changed = parent.diff.flat().filter((item) => item[0]);
  const removed = changed.reduce((sum, item) => sum + item[2] - item[1], 0);
  const added = changed.reduce((sum, item) => sum + item[4] - item[3], 0);
  const title = `Against ${parent.id} (${details.measure} ${fixed(parent.p)}): ${added} lines added, ${removed} removed`;
  return [element("p", { class: "role" }, title), diffBlock(parent.diff, parentLines, own, title)];
}

function scoreTable(candidate) {
  const columns = ["space", `${details.measure} ± s.e.`, "best seed program", "its score", "difference", "evaluations", "failed", "revisits", "last improvement", "final regret", "own CPU s"];
  const head = element("tr", {}, ...columns.map((name, i) => element("th", { scope: "col", class: i === 0 || i === 2 ? "text" : null }, name)));
  const rows = candidate.spaces.map((score) => element("tr", {},
    element("th", { scope: "row" }, score.space),
    ...[
      `${fixed(score.p)} ± ${fixed(score.standard_error)}`, score.reference, fixed(score.reference_p),
      score.p === null || score.reference_p === null ? "–" : (score.p >= score.reference_p ? "+" : "") + fixed(score.p - score.reference_p),
      fixed(score.evaluations, 1), percent(score.failure_share), percent(score.revisit_share),
      `${percent(score.last_improvement)} of the budget`, percent(score.regret), fixed(score.cpu_s, 2),
    ].map((text, i) => element("td", { class: i === 1 ? "text" : null }, text))));
  return element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Scores by space" },
    element("table", {}, element("caption", {}, `${candidate.id} by space, means over its runs`),
      element("thead", {}, head), element("tbody", {}, ...rows)));
}

function callBlock(call, place) {
  const tokens = `${call.prompt_tokens.toLocaleString("en")} + ${call.completion_tokens.toLocaleString("en")} tokens`;
  const price = call.usd === null ? "" : `, ${call.usd.toFixed(4)} USD`;
  const block = element("div", { class: "call" },
    element("h4", {}, `Attempt ${place + 1}: ${call.operator} (${call.model}, ${tokens}${price})`));
  if (call.problem) block.append(element("p", { class: "message" }, call.problem));
  for (const [role, lines] of call.messages) {
    block.append(element("details", {}, element("summary", {}, role === "system" ? "System message" : "Prompt"),
      element("pre", { class: "wrap", tabindex: "0" }, textOf(lines))));
  }
  block.append(call.answer
    ? element("details", {}, element("summary", {}, "Answer"), element("pre", { class: "wrap", tabindex: "0" }, textOf(call.answer)))
    : element("p", { class: "help" }, "No answer arrived."));
  return block;
}

function drawConvergence(candidate) {
  const shown = [...candidate.parents.map((parent) => [bySlot.get(parent.slot), true]), [candidate, false]];
  detailPlots = [...byId("details-convergence").querySelectorAll("[data-space]")].map((host) => {
    const space = host.dataset.space;
    const traces = shown.filter(([item]) => item.curves[space]).map(([item, isParent], place) => ({
      type: "scatter", mode: "lines", name: item.id.replace(/[<>&]/g, ""), showlegend: shown.length > 1,
      x: details.axes[space], y: item.curves[space].map((v) => (v === null ? null : Math.max(100 * v, 0.1))),
      line: { shape: "hv", color: isParent ? `@s${place + 2}` : "@s1", width: isParent ? 1.5 : 2.5, dash: isParent ? "dash" : "solid" },
    }));
    const layout = {
      height: 210, margin: { l: 44, r: 8, t: 22, b: 30 },
      xaxis: { tickformat: ".0%", title: { text: "" } }, yaxis: { type: "log", ticksuffix: " %", dtick: 1 },
      legend: { orientation: "h", y: 1, yanchor: "bottom", x: 0 },
    };
    const spec = { data: traces, layout };
    draw(host, spec, { displayModeBar: false });
    return [host, spec];
  });
}

function redrawDetails() {
  for (const [host, spec] of detailPlots) if (host.isConnected) draw(host, spec, { displayModeBar: false });
}
