// The page of `seedrl watch`. Texts from files enter the document as text, never as HTML.
"use strict";

const LIVE_SECONDS = 5; // status.json is written every second
const MOST_EVENTS = 1000;
const MOST_CURVES = 8;
const NO_ROWS = { env_steps: [], elapsed_seconds: [] };
const query = new URLSearchParams(location.search);

const page = {
  words: { metrics: {}, accounts: {}, equations: [], at_rest: null },
  runs: new Map(), // name -> {facts, status, curve, rounds, isShown, colour}
  selected: query.get("run"),
  detail: emptyDetail(),
  x: "env_steps",
  zoom: null, // {min, max} on the x axis of all charts
  smoothing: 0, // weight of the earlier values
  skew: 0, // the server's clock minus this one, in seconds
  heard: 0,
};

function emptyDetail() {
  return { columns: { ...NO_ROWS }, latest: {}, events: [], env_servers: [], config: {}, videos: [], sample: {} };
}

// --- words and numbers ---

const get = (id) => document.getElementById(id);
const isNumber = (value) => typeof value === "number" && Number.isFinite(value);
const DASH = "–";

function element(name, properties = {}, ...children) {
  const { className, title, ...rest } = properties;
  const made = document.createElement(name);
  if (className) made.className = className;
  if (title) made.title = title;
  for (const [key, value] of Object.entries(rest)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

const format = {
  whole: (n) => (isNumber(n) ? Math.round(n).toLocaleString("en-US") : DASH),
  digits: (n) => {
    if (!isNumber(n)) return DASH;
    const size = Math.abs(n);
    if (size !== 0 && size < 1e-4) return n.toExponential(2);
    const decimals = size >= 1000 ? 0 : size >= 100 ? 1 : size >= 10 ? 2 : size >= 1 ? 3 : 4;
    return n.toLocaleString("en-US", { maximumFractionDigits: decimals });
  },
  // Returns: two decimals where they are small, so that 0.95 and 1 differ.
  score: (n) => (isNumber(n) ? n.toLocaleString("en-US", {
    minimumFractionDigits: Math.abs(n) >= 100 ? 1 : 2, maximumFractionDigits: Math.abs(n) >= 100 ? 1 : 2 }) : DASH),
  percent: (n) => (isNumber(n) ? `${(100 * n).toFixed(n > 0 && n < 0.0995 ? 1 : 0)} %` : DASH),
  short: (n) => {
    if (!isNumber(n)) return DASH;
    for (const [size, unit] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
      if (Math.abs(n) >= size) return `${+(n / size).toPrecision(3)} ${unit}`;
    }
    return `${+n.toPrecision(3)}`;
  },
  duration: (seconds) => {
    if (!isNumber(seconds)) return DASH;
    const s = Math.max(0, Math.round(seconds));
    const two = (n) => String(n).padStart(2, "0");
    const hours = Math.floor(s / 3600);
    if (hours >= 48) return `${Math.floor(hours / 24)} d ${hours % 24} h`;
    return `${hours}:${two(Math.floor(s / 60) % 60)}:${two(s % 60)}`;
  },
  wait: (seconds) => {
    if (!isNumber(seconds)) return DASH;
    if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
    return seconds < 100 ? `${seconds.toFixed(1)} s` : format.duration(seconds);
  },
  clock: (time) => new Date(time * 1000).toLocaleTimeString("en-GB"),
};

// A canvas does not resolve custom properties itself.
function colour(name) {
  const probe = get("probe");
  probe.style.color = `var(--${name})`;
  return getComputedStyle(probe).color;
}

// In the address, so that a reload keeps it.
function remember(name, value) {
  query.set(name, value);
  history.replaceState(null, "", `?${query}`);
}

const now = () => Date.now() / 1000 + page.skew;

// --- messages of the server ---

function connect() {
  const run = page.selected === null ? "" : `?run=${encodeURIComponent(page.selected)}`;
  const source = new EventSource(`stream${run}`);
  source.onmessage = (event) => {
    take(JSON.parse(event.data));
    render();
  };
  source.onerror = () => renderLink();
  page.source = source;
}

function select(name) {
  if (name === page.selected) return;
  page.source.close();
  page.selected = name;
  page.detail = emptyDetail();
  remember("run", name);
  connect();
}

function take(message) {
  page.skew = message.now - Date.now() / 1000;
  page.heard = performance.now();
  for (const [name, brief] of Object.entries(message.runs)) takeBrief(name, brief);
  if (message.names) {
    for (const name of page.runs.keys()) if (!message.names.includes(name)) page.runs.delete(name);
  }
  if (message.selected !== undefined) page.selected = message.selected;
  if (message.detail) takeDetail(message.detail);
}

function takeBrief(name, brief) {
  if (!page.runs.has(name)) {
    const number = page.runs.size;
    page.runs.set(name, { isShown: number < MOST_CURVES, number, facts: {}, status: {} });
    brief.reset = true;
  }
  const run = page.runs.get(name);
  if (brief.reset) Object.assign(run, { curve: { ...NO_ROWS }, rounds: [] });
  if (brief.facts) run.facts = brief.facts;
  if (brief.status) run.status = brief.status;
  if (brief.curve) run.curve = appended(run.curve, brief.curve);
  if (brief.rounds) run.rounds = run.rounds.concat(brief.rounds);
}

function takeDetail(added) {
  if (added.reset) page.detail = emptyDetail();
  const detail = page.detail;
  if (added.columns) detail.columns = appended(detail.columns, added.columns);
  if (added.events) detail.events = detail.events.concat(added.events).slice(-MOST_EVENTS);
  for (const name of ["latest", "env_servers", "config", "videos", "sample"]) if (name in added) detail[name] = added[name];
}

// Columns of equal length, of which each may have been unknown to the other.
function appended(columns, added) {
  const before = (columns.env_steps || []).length;
  const more = (added.env_steps || []).length;
  const result = {};
  for (const name of new Set([...Object.keys(columns), ...Object.keys(added)])) {
    const left = columns[name] || [];
    const right = added[name] || [];
    result[name] = left.concat(Array(before - left.length).fill(null), right, Array(more - right.length).fill(null));
  }
  return result;
}

// --- charts ---

class Chart {
  // series: [{label, colour, width, dash, points, fill, isQuiet, isExact}]; what is exact is not smoothed
  constructor(parent, { title, unit = "", help = "", height = 120, value = format.digits, tick = format.short, range, x = null }) {
    this.options = { height, value, tick, range, x };
    this.legend = element("div", { className: "legend" });
    this.plot = element("div");
    const heading = title ? [element("h3", { title: help }, title, element("span", {}, unit))] : [];
    this.root = element("div", { className: "chart" }, ...heading, this.legend, this.plot);
    parent.append(this.root);
    this.series = [];
    this.data = [[]];
    new ResizeObserver(() => this.resize()).observe(this.plot);
  }

  resize() {
    const width = this.plot.clientWidth;
    if (this.chart && width) this.chart.setSize({ width, height: this.options.height });
    else if (width) this.build();
  }

  show(series, [xs, ...columns]) {
    const isSmoothed = (line) => page.smoothing > 0 && !line.isExact;
    const faint = series.map((line, i) => ({ ...line, isFaint: true, points: false, fill: false, column: columns[i] }))
      .filter(isSmoothed);
    this.data = [xs, ...faint.map((line) => line.column),
      ...columns.map((column, i) => (isSmoothed(series[i]) ? smoothed(column, page.smoothing) : column))];
    const lines = [...faint.map(({ column, ...line }) => line), ...series];
    const key = JSON.stringify([lines, this.options.x || page.x]);
    if (key === this.key && this.chart) return this.draw();
    [this.key, this.lines, this.series, this.x] = [key, lines, series, this.options.x || page.x];
    this.build();
  }

  draw() {
    this.chart.batch(() => {
      this.chart.setData(this.data, !page.zoom);
      if (page.zoom) this.chart.setScale("x", page.zoom);
    });
  }

  build() {
    if (this.chart) this.chart.destroy();
    this.chart = null;
    const width = this.plot.clientWidth;
    if (!width || !this.series.length) return;
    this.buildLegend();
    const axis = { stroke: colour("soft"), grid: { stroke: colour("line"), width: 1 }, ticks: { show: false },
      font: "11px system-ui, sans-serif", labelFont: "11px system-ui, sans-serif" };
    const x = this.x === "elapsed_seconds" ? format.duration : format.short;
    const perTick = this.x === "elapsed_seconds"
      ? { incrs: [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400, 172800, 604800] } : {};
    this.chart = new uPlot({
      width, height: this.options.height, padding: [8, 14, 0, 0],
      scales: { x: { time: false }, y: { range: this.options.range || padded } },
      axes: [
        { ...axis, ...perTick, space: 56, size: 26, gap: 4, values: (u, ticks) => ticks.map(x) },
        { ...axis, space: 20, size: axisWidth, gap: 4, values: (u, ticks) => ticks.map(this.options.tick) },
      ],
      cursor: { points: { size: 6 }, drag: { x: true, y: false, setScale: false },
        bind: { dblclick: () => () => setZoom(null) } },
      legend: { live: true },
      hooks: { setLegend: [(u) => this.fillLegend(u)], setData: [(u) => this.fillLegend(u)],
        setSelect: [(u) => zoomTo(u)], ready: [(u) => dragByTouch(u.over)] },
      series: [{}, ...this.lines.map((line) => ({
        label: line.label, stroke: colour(line.colour), alpha: line.isFaint ? 0.25 : line.isQuiet ? 0.55 : 1,
        width: line.width || 1.5, dash: line.dash, fill: line.fill ? colour("fill") : undefined, spanGaps: true,
        points: { show: line.points || ((u, i) => u.data[i].length < 2), size: 5, fill: colour(line.colour) } }))],
    }, this.data, this.plot);
    this.draw();
  }

  buildLegend() {
    this.values = this.series.map(() => element("b"));
    this.legend.replaceChildren(...this.series.map((line, i) => {
      const swatch = element("i");
      swatch.style.background = `var(--${line.colour})`;
      swatch.style.opacity = line.isQuiet ? 0.55 : 1;
      return element("span", {}, swatch, line.label, this.values[i]);
    }));
  }

  // The values under the cursor, else the newest.
  fillLegend(u) {
    const first = 1 + this.lines.length - this.series.length; // after the faint ones
    this.series.forEach((line, i) => {
      const column = u.data[first + i] || [];
      let at = u.legend.idxs ? u.legend.idxs[first + i] : null;
      if (!isNumber(at)) for (at = column.length - 1; at > 0 && !isNumber(column[at]); at--);
      setText(this.values[i], isNumber(column[at]) ? this.options.value(column[at]) : DASH);
    });
  }
}

// Exponential moving average, divided by the sum of its weights: it does not start near 0.
function smoothed(column, weight) {
  let sum = 0;
  let weights = 0;
  return column.map((value) => {
    if (!isNumber(value)) return value;
    sum = weight * sum + (1 - weight) * value;
    weights = weight * weights + (1 - weight);
    return sum / weights;
  });
}

function setZoom(zoom) {
  page.zoom = zoom;
  get("reset-zoom").hidden = !zoom;
  render();
}

function zoomTo(chart) {
  const { left, width } = chart.select;
  if (!width) return;
  chart.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
  setZoom({ min: chart.posToVal(left, "x"), max: chart.posToVal(left + width, "x") });
}

// uPlot listens to the mouse only. Vertical swipes scroll the page: touch-action in watch.css.
function dragByTouch(over) {
  const asMouse = (event, name) => event.pointerType === "mouse" || over.dispatchEvent(new MouseEvent(name, {
    bubbles: true, clientX: event.clientX, clientY: event.clientY, movementX: 1 }));
  over.addEventListener("pointerdown", (event) => { asMouse(event, "mousemove"); asMouse(event, "mousedown"); });
  over.addEventListener("pointermove", (event) => asMouse(event, "mousemove"));
  for (const name of ["pointerup", "pointercancel"]) over.addEventListener(name, (event) => asMouse(event, "mouseup"));
}

// As wide as its longest label.
function axisWidth(u, labels) {
  return Math.max(40, 10 + 6.5 * Math.max(0, ...(labels || []).map((label) => label.length)));
}

function padded(u, low, high) {
  if (!isNumber(low) || !isNumber(high)) return [0, 1];
  const room = (high - low) * 0.08 || Math.abs(high) * 0.1 || 1;
  return [low >= 0 && low - room < 0 ? 0 : low - room, high + room];
}

const charts = {};

function chart(key, parent, options) {
  charts[key] = charts[key] || new Chart(parent, options);
  return charts[key];
}

function ofColumns(key, parent, options, lines) {
  const { columns } = page.detail;
  const shown = lines.filter((line) => (columns[line.name] || []).some(isNumber));
  const made = chart(key, parent, options);
  made.root.hidden = !shown.length;
  if (!shown.length) return;
  const xs = columns[page.x];
  made.show(shown, [xs, ...shown.map((line) => columns[line.name])]);
}

// --- tables ---

class Table {
  // columns: [{name, isNumeric, isWide, isMinor, title}], the minor ones hidden on a phone; rows come as [{key, cells: [{text, className, sort, node}]}]
  constructor(table, columns, { onRow, sort = null } = {}) {
    this.columns = columns;
    this.onRow = onRow;
    this.sort = sort; // {column, isDown}
    this.rows = new Map();
    this.body = element("tbody");
    this.heads = columns.map((column, number) => {
      const button = element("button", { type: "button", title: column.title || "" }, column.name);
      button.addEventListener("click", () => this.sortBy(number));
      return element("th", { className: classes(column), scope: "col" }, button);
    });
    table.replaceChildren(element("thead", {}, element("tr", {}, ...this.heads)), this.body);
  }

  sortBy(column) {
    const isDown = this.sort && this.sort.column === column ? !this.sort.isDown : this.columns[column].isNumeric;
    this.sort = { column, isDown };
    this.show(this.last);
  }

  show(rows) {
    this.last = rows;
    const kept = new Set(rows.map((row) => row.key));
    for (const [key, row] of this.rows) if (!kept.has(key)) { row.remove(); this.rows.delete(key); }
    this.sorted(rows).forEach((row, place) => {
      let shown = this.rows.get(row.key);
      if (!shown) this.rows.set(row.key, (shown = this.blank(row.key)));
      if (this.body.children[place] !== shown) this.body.insertBefore(shown, this.body.children[place] || null);
      shown.classList.toggle("is-selected", Boolean(row.isSelected));
      row.cells.forEach((cell, i) => this.fill(shown.children[i], cell, this.columns[i]));
    });
    this.heads.forEach((head, i) => {
      if (this.sort && this.sort.column === i) head.setAttribute("aria-sort", this.sort.isDown ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
  }

  sorted(rows) {
    if (!this.sort) return rows;
    const key = (row) => row.cells[this.sort.column].sort ?? row.cells[this.sort.column].text ?? row.key;
    const sign = this.sort.isDown ? -1 : 1;
    return [...rows].sort((a, b) => sign * (key(a) < key(b) ? -1 : key(a) > key(b) ? 1 : 0));
  }

  blank(key) {
    const row = element("tr", {}, ...this.columns.map(() => element("td")));
    if (this.onRow) row.addEventListener("click", () => this.onRow(key));
    return row;
  }

  fill(td, cell, column) {
    const names = classes(column, cell.className);
    if (td.className !== names) td.className = names;
    if (cell.node) { if (td.firstChild !== cell.node) td.replaceChildren(cell.node); } else setText(td, cell.text);
    if ((cell.title || "") !== td.title) td.title = cell.title || "";
  }
}

const classes = (column, more) =>
  [column.isNumeric && "num", column.isWide && "wide", column.isMinor && "minor", more].filter(Boolean).join(" ");

// --- parts of the page ---

const STATES = {
  starting: ["starting", "warn"], waiting: ["waiting for env servers", "warn"], compiling: ["compiling", "warn"],
  training: ["training", "good"], evaluating: ["evaluating", "good"], stopping: ["stopping", "warn"],
  finished: ["finished", "dim"],
};

function stateOf(run) {
  const { status } = run;
  if (!status.state) return { word: "no status", tone: "dim", isLive: false };
  const [word, tone] = STATES[status.state] || [String(status.state), "dim"];
  const age = now() - status.time_seconds;
  if (status.state !== "finished" && age > LIVE_SECONDS) {
    return { word: `no report for ${format.wait(age)}`, tone: "bad", isLive: false };
  }
  return { word, tone, isLive: status.state !== "finished" };
}

function render() {
  const run = page.runs.get(page.selected);
  get("nothing").hidden = page.runs.size > 0;
  for (const id of ["head", "learning", "videos", "sample", "balance", "servers", "numbers", "ledger", "config"]) get(id).hidden = !run;
  renderRuns();
  renderLink();
  if (!run) return;
  renderHead(run);
  renderCurve();
  renderEvents();
  renderBalance(run);
  renderServers(run);
  renderNumbers();
  renderLedger();
  renderConfig();
  renderVideos();
  renderSample();
  document.documentElement.dataset.rendered = String((+document.documentElement.dataset.rendered || 0) + 1);
}

function renderLink() {
  const chip = get("link");
  const isLost = !page.source || page.source.readyState !== EventSource.OPEN;
  const run = page.runs.get(page.selected);
  const state = run && stateOf(run);
  setText(chip, isLost ? "connection lost, reconnecting" : state && state.isLive ? "live" : "not running");
  chip.className = `chip ${isLost ? "bad" : state && state.isLive ? "good" : "dim"}`;
  setText(get("bar-run"), page.selected || "");
  document.title = page.selected ? `${page.selected} · seedrl watch` : "seedrl watch";
}

function renderRuns() {
  get("runs").hidden = page.runs.size < 2;
  if (page.runs.size < 2) return;
  const shown = [...page.runs.values()].filter((run) => run.isShown).length;
  setText(get("runs-note"), `${shown} of ${page.runs.size} in the learning curve`);
  const table = (page.runsTable = page.runsTable || new Table(get("runs-table"), [
    { name: "" }, { name: "run" }, { name: "environment", isMinor: true }, { name: "agent", isMinor: true },
    { name: "state", isMinor: true }, { name: "steps", isNumeric: true, isMinor: true }, { name: "done", isNumeric: true },
    { name: "training return", isNumeric: true, isMinor: true }, { name: "evaluation", isNumeric: true },
    { name: "best", isNumeric: true, isMinor: true }, { name: "steps/s", isNumeric: true, isMinor: true },
    { name: "time", isNumeric: true, isMinor: true },
  ], { onRow: select }));
  table.show([...page.runs].map(([name, run]) => {
    const { status, facts } = run;
    const state = stateOf(run);
    const last = status.last_evaluation || {};
    const best = status.best_evaluation || {};
    const number = (value, write) => ({ text: write(value), sort: isNumber(value) ? value : -Infinity });
    return { key: name, isSelected: name === page.selected, cells: [
      { node: tick(name, run), sort: run.isShown ? 0 : 1 }, { node: link(name, run) }, { text: facts.environment || DASH },
      { text: facts.agent ? `${facts.agent}, seed ${facts.seed}` : DASH }, { text: state.word, className: state.tone },
      number(status.env_steps, format.whole), number(share(run), format.percent),
      number((status.metrics || {})["return/training"], format.score), number(last.mean_return, format.score),
      number(best.mean_return, format.score),
      number(state.isLive ? status.env_steps_per_second : null, format.whole),
      number(status.elapsed_seconds, format.duration)] };
  }));
}

// Rows react to the mouse, and this also to the keyboard.
function link(name, run) {
  if (!run.link) {
    run.link = element("a", { href: `?run=${encodeURIComponent(name)}` }, name);
    run.link.addEventListener("click", (event) => event.preventDefault());
  }
  return run.link;
}

function tick(name, run) {
  if (!run.tick) {
    // The label is larger than the box, for fingers.
    const box = element("input", { type: "checkbox", "aria-label": `${name} in the learning curve` });
    box.addEventListener("change", () => { run.isShown = box.checked; render(); });
    run.swatch = element("span", { className: "swatch" });
    run.tick = element("label", { className: "tick" }, box, run.swatch);
    run.tick.addEventListener("click", (event) => event.stopPropagation());
    run.box = box;
  }
  run.box.checked = run.isShown;
  run.swatch.style.background = `var(--${lineColour(run)})`;
  return run.tick;
}

const lineColour = (run) => `run-${run.number % MOST_CURVES}`;
const share = (run) => run.status.env_steps / (run.status.total_steps || run.facts.total_steps);

function renderHead(run) {
  const { status, facts } = run;
  const state = stateOf(run);
  setText(get("run-name"), page.selected);
  setText(get("state"), state.word);
  get("state").className = `chip ${state.tone}`;
  setText(get("facts"), [facts.environment, facts.agent, isNumber(facts.seed) && `seed ${facts.seed}`, status.config,
    status.address && `serving on ${status.address}`, status.pid && `pid ${status.pid}`].filter(Boolean).join(" · "));
  setText(get("sentence"), status.reason || (state.isLive && status.waiting_for) || "");
  const done = share(run);
  get("progress").hidden = !isNumber(done);
  get("progress-fill").style.width = `${100 * Math.min(1, done || 0)}%`;
  const left = (status.total_steps - status.env_steps) / status.env_steps_per_second;
  setText(get("progress-text"), isNumber(done)
    ? `${format.whole(status.env_steps)} of ${format.whole(status.total_steps)} steps, ${format.percent(done)}` +
      `, ${format.duration(status.elapsed_seconds)} elapsed` +
      (state.isLive && isNumber(left) && left > 0 ? `, at most ${format.duration(left)} left` : "") : "");
  renderTiles(status, state);
}

function renderTiles(status, state) {
  const evaluation = (found) => found && `at ${format.short(found.env_steps)} steps`;
  const last = status.last_evaluation;
  const best = status.best_evaluation;
  const metrics = { ...page.detail.latest, ...status.metrics };
  // A run that has ended has no rate.
  const counted = (name, rate, total, note) => (state.isLive
    ? [name, format.digits(rate), "/s", note || `${format.short(total)} in total`]
    : [name, format.whole(total), "", note || "in total"]);
  const tiles = [
    ["Training return", format.score(metrics["return/training"]), "", "newest episodes"],
    ["Evaluation, last", format.score(last && last.mean_return), "", evaluation(last)],
    ["Evaluation, best", format.score(best && best.mean_return), "", evaluation(best)],
    ["Target", format.score(status.target_return), "", isNumber(status.target_return) ? "ends the run" : "none"],
    counted("Steps", status.env_steps_per_second, status.env_steps),
    counted("Updates", status.updates_per_second, status.updates,
      metrics.skipped_updates && `${format.whole(metrics.skipped_updates)} skipped`),
    ["Replay ratio", format.digits(metrics.replay_ratio), "", `target ${format.digits(metrics.replay_ratio_target)}`],
    ["Policy lag", format.digits(metrics.policy_lag_updates), "updates", "from acting to learning"],
  ];
  const list = get("tiles");
  if (list.children.length !== tiles.length) {
    list.replaceChildren(...tiles.map(([name]) => element("div", {}, element("dt", {}, name),
      element("dd", {}, element("span"), element("small")), element("div", { className: "note" }))));
  }
  tiles.forEach(([, value, unit, note], i) => {
    const [, number, small] = list.children[i].children;
    setText(number.children[0], value);
    setText(number.children[1], value === DASH ? "" : unit);
    setText(small, note || "");
  });
}

function renderCurve() {
  const shown = [...page.runs].filter(([name, run]) => (page.runs.size === 1 || run.isShown) && run.curve);
  const series = [];
  const tables = [];
  const add = (line, xs, ys) => { series.push(line); tables.push([xs, ys]); };
  for (const [name, run] of shown) {
    const isOnly = shown.length === 1;
    const label = (kind) => (isOnly ? kind : `${name} ${kind}`);
    const hue = lineColour(run);
    const training = run.curve["return/training"] || [];
    if (training.some(isNumber)) {
      add({ label: label("training"), colour: hue, width: 1.25, isQuiet: run.rounds.length > 0 }, run.curve[page.x], training);
    }
    if (run.rounds.length) {
      add({ label: label("evaluation"), colour: hue, width: 2, points: run.rounds.length < 80, isExact: true },
        run.rounds.map((round) => round[page.x]), run.rounds.map((round) => round.mean_return));
    }
  }
  const selected = page.runs.get(page.selected);
  const target = selected && (selected.status.target_return ?? selected.facts.target_return);
  const xs = tables.flatMap(([column]) => column);
  const most = tables.reduce((top, [, ys]) => ys.reduce((a, b) => Math.max(a, Math.abs(b)), top), 0);
  // One that is far away would leave a flat line.
  if (isNumber(target) && xs.length && (Math.abs(target) <= 3 * most || most < 1)) {
    const ends = [xs.reduce((a, b) => Math.min(a, b)), xs.reduce((a, b) => Math.max(a, b))];
    add({ label: "target", colour: "soft", width: 1, dash: [5, 5], isExact: true }, ends, [target, target]);
  }
  const made = chart("curve", get("curve"), { height: 330, value: format.score });
  made.root.hidden = !series.length;
  if (series.length) made.show(series, uPlot.join(tables));
}

function renderEvents() {
  const events = page.detail.events;
  const isFiltered = get("only-problems").checked;
  const key = `${page.selected} ${events.length} ${isFiltered} ${events.length && events[events.length - 1].time_seconds}`;
  if (page.eventsKey === key) return;
  page.eventsKey = key;
  const shown = events.filter((event) => !isFiltered || event.is_problem).slice(-300).reverse();
  get("events").replaceChildren(...shown.map((event) => element("li", {},
    element("time", { title: `${format.clock(event.time_seconds)}, ${format.whole(event.env_steps)} steps` },
      format.duration(event.elapsed_seconds)),
    element("span", { className: event.is_problem ? "text bad" : "text" }, String(event.text)))));
  if (!shown.length) get("events").replaceChildren(element("li", {}, element("time"), element("span", { className: "soft" }, "none")));
}

// Of each side, in the order of a turn; what is missing from 100 % was not measured.
const STAGES = {
  acting: ["environment", "batch", "transfer", "act", "wire", "other", "waits"],
  learning: ["insert", "sample", "learn", "publish", "other", "waits"],
};

// A bar of the time of each side in the newest interval.
function renderBars() {
  const { latest } = page.detail;
  const bars = Object.entries(STAGES).filter(([side]) => isNumber(latest[`${side}_waits_share`])).map(([side, stages]) => {
    const parts = stages.map((stage, i) => {
      const name = `${side}_${stage}_share`;
      return { stage, share: latest[name] || 0, title: (page.words.metrics[name] || {}).meaning || "",
        hue: stage === "waits" ? "faint" : `run-${i}` };
    });
    const rest = Math.max(0, 1 - parts.reduce((sum, part) => sum + part.share, 0));
    const bar = element("div", { className: "stages", role: "img", "aria-label": `time of ${side}` }, ...parts.map((part) => {
      const piece = element("i", { title: part.title });
      piece.style.cssText = `width: ${100 * part.share}%; background: var(--${part.hue})`;
      return piece;
    }));
    const legend = element("div", { className: "legend" }, element("span", {}, element("b", {}, side)), ...parts.map((part) => {
      const swatch = element("i");
      swatch.style.background = `var(--${part.hue})`;
      return element("span", { title: part.title }, swatch, part.stage, element("b", {}, format.percent(part.share)));
    }), element("span", { title: "in no stage, or in one that has not ended" }, "rest", element("b", {}, format.percent(rest))));
    return element("div", {}, bar, legend);
  });
  get("balance-bars").replaceChildren(...bars);
}

function renderBalance(run) {
  setText(get("balance-sentence"), run.status.balance || "");
  renderBars();
  const parent = get("balance-charts");
  const meaning = (name) => (page.words.metrics[name] || {}).meaning || "";
  const fromZero = (u, low, high) => [0, 1.1 * high || 1];
  const whole = { value: format.percent, tick: format.percent, range: () => [0, 1] };
  ofColumns("waits", parent, { title: "Waiting", unit: "share of time", ...whole }, [
    { name: "acting_waits_share", label: "acting", colour: "run-1" },
    { name: "learning_waits_share", label: "learning", colour: "run-0" }]);
  ofColumns("lag", parent, { title: "Policy lag", unit: "updates", help: meaning("policy_lag_updates"), range: fromZero }, [
    { name: "policy_lag_updates", label: "mean", colour: "run-0" },
    { name: "policy_lag_updates_max", label: "largest", colour: "run-1" },
    { name: "serving_lag_updates", label: "when acting", colour: "run-2" }]);
  ofColumns("ratio", parent, { title: "Replay ratio", unit: "trained steps per step", help: meaning("replay_ratio"), range: fromZero }, [
    { name: "replay_ratio", label: "measured", colour: "run-0" },
    { name: "replay_ratio_target", label: "target", colour: "soft", dash: [5, 5], width: 1, isExact: true }]);
  ofColumns("steps", parent, { title: "Acting", unit: "steps/s", value: format.whole, range: fromZero }, [
    { name: "env_steps_per_second", label: "training", colour: "run-0" },
    { name: "evaluation_steps_per_second", label: "evaluation", colour: "run-2" }]);
  ofColumns("updates", parent, { title: "Learning", unit: "updates/s", range: fromZero }, [
    { name: "updates_per_second", label: "applied", colour: "run-0" },
    { name: "skipped_updates_per_second", label: "skipped", colour: "run-1" }]);
  ofColumns("reply", parent, { title: "Reply time", unit: "ms", help: meaning("reply_ms"), range: fromZero }, [
    { name: "reply_ms", label: "total", colour: "run-0" },
    { name: "queue_wait_ms", label: "queue", colour: "run-1" },
    { name: "inference_ms", label: "inference", colour: "run-2" }]);
}

const SERVER_TONES = { building: "warn", live: "good", hung: "bad", left: "dim" };
const SERVER_ORDER = ["hung", "building", "live", "left"];

function renderServers(run) {
  const servers = page.detail.env_servers;
  const isLive = stateOf(run).isLive;
  const counts = SERVER_ORDER.map((state) => [state, servers.filter((server) => server.state === state).length]);
  const total = (name) => servers.reduce((sum, server) => sum + (server.state === "left" ? 0 : server[name] || 0), 0);
  const failures = servers.reduce((sum, server) => sum + (server.failures || 0), 0);
  setText(get("servers-note"), servers.length === 0 ? "none" : [
    ...counts.filter(([, count]) => count).map(([state, count]) => `${count} ${state}`),
    `${format.whole(total("environments"))} environments`,
    isLive && `${format.whole(total("steps_per_second"))} steps/s`,
    `${format.whole(failures)} failure${failures === 1 ? "" : "s"} of environments`].filter(Boolean).join(" · "));
  const slots = (name, found) => found && `${name}: ${format.whole(found.live)} of ${format.whole(found.total)} live` +
    (found.waiting ? `, ${format.whole(found.waiting)} delay the learner` : "") + (found.hung ? `, ${format.whole(found.hung)} hung` : "");
  setText(get("slots"), [slots("Training slots", run.status.training_slots),
    slots("evaluation slots", run.status.evaluation_slots)].filter(Boolean).join("; "));
  const table = (page.serversTable = page.serversTable || new Table(get("servers-table"), [
    { name: "env server" }, { name: "state" },
    { name: "for", isNumeric: true, isMinor: true, title: "time in this state" },
    { name: "groups", isNumeric: true, isMinor: true, title: "groups of environments that step together" },
    { name: "training", isNumeric: true, isMinor: true, title: "environments for training" },
    { name: "evaluation", isNumeric: true, isMinor: true, title: "environments for evaluation" },
    { name: "steps/s", isNumeric: true, title: "over the last second" },
    { name: "wait", isNumeric: true, isMinor: true, title: "the learner's wait for the step of the slowest group" },
    { name: "failures", isNumeric: true, title: "exceptions of its environments" },
    { name: "last failure or reason for leaving", isWide: true },
  ], { sort: { column: 1, isDown: false } }));
  table.show(servers.map((server) => serverRow(server, isLive, isLive ? now() : run.status.time_seconds)));
}

function serverRow(server, isLive, time) {
  const groups = server.hung_groups || [];
  const rank = `${SERVER_ORDER.indexOf(server.state)} ${server.name}`;
  const number = (value, write = format.whole, className = "") =>
    ({ text: write(value), sort: isNumber(value) ? value : -1, className: className || (value ? "" : "dim") });
  return { key: server.name, cells: [
    { text: String(server.name) },
    { text: groups.length ? `${server.state}: group ${groups.join(", ")}` : String(server.state), sort: rank,
      className: SERVER_TONES[server.state] || "" },
    number(time - server.since_seconds, format.duration),
    number(server.groups), number(server.training_slots), number(server.evaluation_slots),
    number(isLive ? server.steps_per_second : null),
    number(isLive ? server.waiting_seconds : null, format.wait, server.waiting_seconds >= 1 ? "warn" : ""),
    number(server.failures, format.whole, server.failures ? "bad" : ""),
    { text: String(server.left_because || server.last_failure || "") }] };
}

function renderNumbers() {
  const { columns } = page.detail;
  const named = Object.keys(columns).filter((name) => {
    const group = (page.words.metrics[name] || {}).group;
    const isKnown = /^(env_steps|elapsed_seconds|return\/|episodes\/)|_per_second$/.test(name);
    return !isKnown && (!group || group === "learning" || group === "agent" || name.startsWith("length/"));
  }).sort();
  get("numbers").hidden = !named.length;
  for (const name of named) {
    const { unit = "", meaning = "" } = page.words.metrics[name] || {};
    const options = { title: name.replace(/^(agent|episode)\//, "").replaceAll("_", "_\u200b"), unit, help: meaning, height: 92 };
    ofColumns(`number ${name}`, get("numbers-charts"), options, [
      { name, label: "", colour: "run-0", fill: !columns[name].some((value) => value < 0) }]);
  }
  for (const [key, made] of Object.entries(charts)) {
    if (key.startsWith("number ") && !named.includes(key.slice(7))) made.root.hidden = true;
  }
}

function renderLedger() {
  const { latest } = page.detail;
  const rows = (name) => latest[`ledger/${name}`] || 0;
  const sum = (names) => names.reduce((total, name) => total + rows(name), 0);
  const equations = [...page.words.equations, ...(page.words.at_rest ? [page.words.at_rest] : [])];
  get("ledger").hidden = !Object.keys(latest).some((name) => name.startsWith("ledger/")) || !equations.length;
  if (get("ledger").hidden) return;
  const account = (name) => element("div", { className: rows(name) ? "account" : "account is-zero",
    title: page.words.accounts[name] || "" }, element("span", {}, name), element("b", {}, format.whole(rows(name))));
  const joined = (names) => names.flatMap((name, i) => (i ? [element("i", {}, "+"), account(name)] : [account(name)]));
  const lines = equations.map((equation, i) => {
    const residue = sum(equation.left) - sum(equation.right);
    // Full pages may be in transit: this one need not balance before the run is at rest.
    const isOpen = i === page.words.equations.length && residue > 0;
    const verdict = residue === 0 ? ["balances", "good"] : isOpen
      ? [`${format.whole(residue)} in transit`, "soft"] : [`off by ${format.whole(residue)}`, "bad"];
    return { node: element("div", { className: "equation" }, ...joined(equation.left), element("i", {}, "="),
      ...joined(equation.right), element("span", { className: `verdict ${verdict[1]}` }, verdict[0])),
    isBroken: residue !== 0 && !isOpen };
  });
  const broken = lines.filter((line) => line.isBroken).length;
  setText(get("ledger-note"), "time steps: each one that arrived is in exactly one account" +
    (broken ? `; ${broken} do not balance` : ""));
  const text = JSON.stringify(equations.map((equation) => [...equation.left, ...equation.right].map(rows)));
  if (page.ledgerKey === text) return;
  page.ledgerKey = text;
  get("equations").replaceChildren(...lines.map((line) => line.node));
}

function renderConfig() {
  const key = JSON.stringify(page.detail.config);
  if (page.configKey === key) return;
  page.configKey = key;
  const rows = [];
  const walk = (value, path) => {
    if (value && typeof value === "object" && !Array.isArray(value)) {
      for (const [name, item] of Object.entries(value)) if (name !== "type") walk(item, path ? `${path}.${name}` : name);
    } else rows.push([path, JSON.stringify(value)]);
  };
  walk(page.detail.config.config || {}, "");
  get("config-table").replaceChildren(element("tbody", {}, ...rows.map(([name, value]) =>
    element("tr", {}, element("td", {}, name), element("td", { className: "wide" }, value)))));
}

function renderVideos() {
  const { videos } = page.detail;
  get("videos").hidden = !videos.length;
  const key = JSON.stringify([page.selected, videos]);
  if (page.videosKey === key) return;
  page.videosKey = key;
  get("videos-list").replaceChildren(...videos.map(({ name, changed }) => {
    // `changed`, because a new video may take the name of an old one.
    const address = `video?${new URLSearchParams({ run: page.selected, name, changed })}`;
    const video = element("video", { src: address, controls: "", loop: "", muted: "", playsinline: "", preload: "metadata" });
    return element("figure", {}, video, element("figcaption", {}, name.replace(/\.mp4$/, "").replaceAll("_", " ")));
  }));
}

// Tokens of a token policy's newest group, as characters if its environment has named them, else as ids.
function renderSample() {
  const { sample } = page.detail;
  const rollouts = Array.isArray(sample.rollouts) ? sample.rollouts.filter((each) => each && Array.isArray(each.ids)) : [];
  get("sample").hidden = !rollouts.length;
  const key = JSON.stringify(sample);
  if (page.sampleKey === key) return;
  page.sampleKey = key;
  setText(get("sample-note"), `${rollouts.length} of ${format.whole(sample.group)}, after update ${format.whole(sample.version)}`);
  const alphabet = [...String(sample.alphabet || "")];
  get("sample-list").replaceChildren(...rollouts.map((rollout) => {
    const [isPolicy, logs, lags] = ["is_policy", "log_mu", "lags"].map((name) => rollout[name] || []);
    const caption = [`reward ${format.digits(rollout.reward)}`,
      `lag ${format.whole(Math.max(0, ...rollout.ids.map((id, i) => (isPolicy[i] && lags[i]) || 0)))}`,
      rollout.is_cut && "cut", rollout.num_tokens > rollout.ids.length && `first ${rollout.ids.length} tokens`];
    return element("figure", {}, element("p", {}, ...rollout.ids.map((id, i) => {
      const text = id === sample.end ? "⏎" : alphabet[id] || `${id} `;
      if (!isPolicy[i]) return element("span", {}, text);
      const made = element("b", { title: `token ${id}, probability ${format.percent(Math.exp(logs[i]))}, lag ${lags[i]}` }, text);
      // At most so strong that the text can be read.
      made.style.setProperty("--surprise", 40 * (1 - Math.exp(logs[i])));
      return made;
    })), element("figcaption", {}, caption.filter(Boolean).join(" · ")));
  }));
}

// --- start ---

for (const button of document.querySelectorAll("[data-x]")) {
  button.addEventListener("click", () => {
    page.x = button.dataset.x;
    for (const other of document.querySelectorAll("[data-x]")) other.setAttribute("aria-pressed", String(other === button));
    setZoom(null);
  });
}
get("only-problems").addEventListener("change", renderEvents);
get("reset-zoom").addEventListener("click", () => setZoom(null));
get("smoothing").addEventListener("input", (event) => {
  page.smoothing = Number(event.target.value);
  setText(get("smoothing-value"), page.smoothing.toFixed(2));
  render();
});

const prefersDark = matchMedia("(prefers-color-scheme: dark)");

function showTheme() {
  const theme = query.get("theme");
  const isDark = theme ? theme === "dark" : prefersDark.matches;
  document.documentElement.dataset.theme = isDark ? "dark" : "light";
  setText(get("theme"), isDark ? "Light" : "Dark");
  for (const made of Object.values(charts)) made.build();
}

get("theme").addEventListener("click", () => {
  remember("theme", document.documentElement.dataset.theme === "dark" ? "light" : "dark");
  showTheme();
});
prefersDark.addEventListener("change", showTheme);
showTheme();
// The state of a run that has died changes without a message.
setInterval(() => { if (page.heard) render(); }, 1000);

fetch("words.json").then((answer) => answer.json()).then((words) => { page.words = words; connect(); });
