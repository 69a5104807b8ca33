// Order of things: what needs no data first, then the data, then Plotly.

function followAddress() {
  const address = decodeURIComponent(location.hash.slice(1));
  const candidate = address.match(/^candidate=(-?\d+)$/);
  if (candidate) openCandidate(Number(candidate[1]), document.activeElement);
  else if (address) openTab(address);
}

function startReloading() {
  const box = byId("reload");
  if (!box) return;
  box.checked = remembered("reload") !== "no";
  box.addEventListener("change", () => remember("reload", box.checked ? "yes" : "no"));
  // Not under the reader's hands: only while no candidate is open.
  setInterval(() => {
    const reading = byId("details") && !byId("details").hidden;
    if (box.checked && !reading && !document.hidden) location.reload();
  }, 10000);
}

async function start() {
  document.documentElement.classList.remove("no-script");
  startTheme();
  startTabs();
  startTables();
  startCode();
  startReloading();
  if (typeof DecompressionStream === "undefined") {
    showProblem("This browser cannot unpack the charts and programs (it lacks DecompressionStream). The tables are complete; a browser of 2023 or later shows the rest.");
    return;
  }
  const payload = JSON.parse(await unpacked("payload"));
  Object.assign(figures, payload.figures);
  startDetails(payload.details);
  startTree();
  await startCharts();
  themeListeners.push(redrawAll);
  started = true;
  followAddress();
  addEventListener("hashchange", followAddress);
  document.documentElement.dataset.ready = "1";
}

start().catch((error) => showProblem(`The report could not be drawn: ${error.message}`));
