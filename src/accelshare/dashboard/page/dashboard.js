// The dashboard's page: keeps a copy of the newest snapshot, and shows it.
//
// Names and messages are written by others, so every text goes to the page through textContent or an attribute, never as markup.
"use strict";

const TEXTS = {
  en: {
    skip: "Skip to the nodes", language: "Language", overview: "Overview", search: "Search nodes, pods, models", vendor: "Vendor",
    namespace: "Namespace", all: "All", waiting: "Waiting pods", namespaces: "Namespaces and quotas", nodes: "Nodes and cards",
    keys: "Arrow keys move between cards, Enter shows details, / searches.", readonly: "read-only", close: "Close", login: "Sign in",
    token: "Token", enter: "Sign in", wrongToken: "This token is not accepted.", connecting: "Connecting …", listing: "Listing nodes and pods …",
    live: "Live", broken: "Connection lost, trying again …", interrupted: "The API server cannot be watched, so this may be outdated",
    noQuotas: "ResourceQuotas cannot be read", cards: "cards", cardsHeld: "of all cards held", unhealthy: "unhealthy", fill: "Fill", fragmentation: "Fragmentation",
    fragmentationHelp: "Part of what is free that lies on cards with pods", pod: "Pod", since: "Since", reason: "Reason", pods: "Pods", held: "Held",
    quota: "Quota", used: "{0} of {1}", free: "{0} free", nobodyWaits: "No pod waits for a card.", noNamespaces: "No namespace holds cards or has a quota for them.",
    noNodes: "No node of this cluster has a card.", noMatch: "Nothing matches the filters.", matches: "{0} of {1} nodes match", nodesWord: "nodes", nodeWord: "node",
    fits: "Cards are free on {0} node(s); kube-scheduler has not bound it, see details", notCompared: "See details", requestWrong: "The request is wrong",
    gone: "the node no longer has this card", healthy: "healthy", paused: "does not deliver cards now", unknownNode: "the node object is gone", card: "Card",
    model: "Model", hardwareId: "Hardware id", health: "Health", allocated: "Allocated", enforcedBy: "Shares enforced by", minimum: "Smallest slice", address: "Address",
    whole: "whole card", notConfirmed: "bind not confirmed yet", unplaced: "On an unknown card", explain: "Explain", explaining: "Asking the ledger …",
    wrong: "Wrong", obstacle: "obstacle", remedy: "would help", missing: "missing", moreNodes: "… and {0} more nodes", scheduler: "kube-scheduler",
    delivery: "Delivery", vendorCards: "{0} cards", ago: "{0} ago", lastHours: "last {0} h, {1} to {2}", now: "now {0}", openPod: "Explain pod {0}", listed: "the first {0} of {1}",
    inUse: "uses {0}", overUse: "more than it holds", memoryInUse: "Memory in use",
  },
  zh: {
    skip: "跳到节点", language: "语言", overview: "概览", search: "搜索节点、Pod、型号", vendor: "厂商",
    namespace: "命名空间", all: "全部", waiting: "等待中的 Pod", namespaces: "命名空间与配额", nodes: "节点与卡",
    keys: "方向键在卡之间移动，Enter 显示详情，/ 搜索。", readonly: "只读", close: "关闭", login: "登录",
    token: "令牌", enter: "登录", wrongToken: "此令牌未被接受。", connecting: "正在连接……", listing: "正在列出节点和 Pod……",
    live: "实时", broken: "连接已断开，正在重试……", interrupted: "无法监视 API server，以下内容可能已过时",
    noQuotas: "无法读取 ResourceQuota", cards: "张卡", cardsHeld: "的卡已被占用", unhealthy: "不健康", fill: "占用率", fragmentation: "碎片率",
    fragmentationHelp: "空闲部分中位于已有 Pod 的卡上的比例", pod: "Pod", since: "等待时间", reason: "原因", pods: "Pod 数", held: "占用",
    quota: "配额", used: "{0} / {1}", free: "空闲 {0}", nobodyWaits: "没有 Pod 在等待卡。", noNamespaces: "没有命名空间占用卡或设置了卡的配额。",
    noNodes: "此集群没有带卡的节点。", noMatch: "没有符合筛选条件的内容。", matches: "{1} 个节点中有 {0} 个符合", nodesWord: "个节点", nodeWord: "个节点",
    fits: "{0} 个节点有空闲的卡；kube-scheduler 尚未绑定，见详情", notCompared: "见详情", requestWrong: "申请本身有误",
    gone: "节点已没有这张卡", healthy: "健康", paused: "目前不交付卡", unknownNode: "节点对象已不存在", card: "卡",
    model: "型号", hardwareId: "硬件 ID", health: "健康状况", allocated: "已分配", enforcedBy: "份额由谁强制", minimum: "最小切片", address: "地址",
    whole: "整卡", notConfirmed: "绑定尚未确认", unplaced: "卡号未知", explain: "解释", explaining: "正在询问账本……",
    wrong: "错误", obstacle: "障碍", remedy: "可行的办法", missing: "缺少", moreNodes: "……还有 {0} 个节点", scheduler: "kube-scheduler",
    delivery: "交付方式", vendorCards: "{0} 张卡", ago: "{0}", lastHours: "最近 {0} 小时，{1} 至 {2}", now: "现在 {0}", openPod: "解释 Pod {0}", listed: "共 {1} 个，显示前 {0} 个",
    inUse: "使用 {0}", overUse: "超过其占用量", memoryInUse: "已使用的显存",
  },
};
// The reasons by their constant word; in English the vendor's own text is shown.
const REASONS_ZH = {
  "no-card-has-room": "没有一张卡的剩余显存足够", "too-few-cards-have-room": "剩余显存足够的卡太少", "no-card-is-empty": "没有空卡",
  "too-few-cards-are-empty": "空卡太少", "cards-have-most-slices": "卡的切片数已达上限", "larger-than-any-card": "比任何一张卡都大",
  "too-few-cards": "节点上的卡太少", "limits-not-enforced": "没有强制的显存限制", "smaller-than-minimum": "小于可运行的最小切片",
  "cards-unhealthy": "卡不健康", "delivery-paused": "节点目前不交付卡", "no-cards": "没有该厂商的卡", "unknown-node": "节点未知",
  "card-count-unreadable": "卡数无法识别", "card-count-leaves-remainder": "显存不能平均分到各张卡", "too-many-whole-cards": "整卡数过多",
  "amount-unreadable": "数量无法识别", "larger-than-any-shape": "大于所有规格", "whole-and-slice-in-one-container": "同一容器申请了整卡和切片",
  "enforcement-unreadable": "enforcement 注解无法识别",
};
const SILENCE_MS = 30_000;  // the server sends something every 10 s
const LONGEST_RETRY_MS = 5_000;
const AHEAD = "1500px";  // nodes this far outside the window get their cards
const COLOURS = 8;
const SVG = "http://www.w3.org/2000/svg";

const byId = (id) => document.getElementById(id);
const collator = new Intl.Collator("en", { numeric: true });
const state = {
  language: "en", nodes: new Map(), sections: {}, lastEventId: "", connection: "connecting",
  filter: { text: "", vendor: "", namespace: "" }, elements: new Map(), active: null, problem: "",
};

// Texts.

function t(key, ...values) {
  return TEXTS[state.language][key].replace(/\{(\d)\}/g, (_, index) => String(values[index]));
}

function remembered(key) {
  try { return localStorage.getItem(key); } catch { return null; }
}

function remember(storage, key, value) {
  try { window[storage].setItem(key, value); } catch { /* private windows may refuse; it is asked again next time */ }
}

function setLanguage(language) {
  state.language = language in TEXTS ? language : "en";
  document.documentElement.lang = state.language === "zh" ? "zh-CN" : "en";
  byId("language").value = state.language;
  for (const element of document.querySelectorAll("[data-text]")) element.textContent = t(element.dataset.text);
  showStatus();
  if ("totals" in state.sections) showEverything();
}

const percent = (part) => `${Math.round(part * 100)}%`;
const amount = (units, unit) => (unit === "card" || unit === "" ? String(units) : /^\d/.test(unit) ? `${units} × ${unit}` : `${units} ${unit}`);

// As `inspect` prints bytes.
function inBytes(bytes) {
  for (const [size, name] of [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"]]) if (bytes >= size) return `${(bytes / size).toFixed(1)} ${name}`;
  return bytes ? "<1 MiB" : "0";
}

const known = (number) => typeof number === "number";

// What a pod uses of what it holds, where its node's agent tells it; else nothing.
function useOf(use) {
  if (!use) return "";
  const numbers = [known(use.used_bytes) ? inBytes(use.used_bytes) : "", known(use.utilisation) ? percent(use.utilisation) : ""].filter(Boolean);
  return numbers.length ? t("inUse", numbers.join(", ")) + (use.over_use ? `, ${t("overUse")}` : "") : "";
}

function age(created) {
  const seconds = Math.max(0, (Date.now() - Date.parse(created)) / 1000);
  if (Number.isNaN(seconds)) return "";
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return seconds < 172800 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86400)} d`;
}

// Elements.

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === false) continue;
    if (name === "class") element.className = value;
    else if (name === "onclick") element.addEventListener("click", value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

function makeSvg(tag, attributes, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  element.append(...children);
  return element;
}

// The snapshot.

function apply(event, message) {
  const start = performance.now();
  const changed = new Set(message.nodes.map((node) => node.name));
  if (event === "snapshot") {
    for (const name of state.nodes.keys()) if (!changed.has(name)) message.removed.push(name);
    state.sections = {};
  }
  for (const name of message.removed) state.nodes.delete(name);
  for (const node of message.nodes) state.nodes.set(node.name, node);
  const { nodes: _nodes, removed, ...sections } = message;
  Object.assign(state.sections, sections);
  if ("about" in sections) showFilters();
  if ("totals" in sections) showTotals();
  if ("history" in sections) showPlots();
  if ("waiting" in sections || "totals" in sections) showWaiting();
  if ("namespaces" in sections || "interrupted" in sections) { showFilters(); showNamespaces(); }
  if ("interrupted" in sections) showInterrupted();
  if ("use_notes" in sections) showUseNotes();
  showNodes(changed, removed);
  // For measurements; a tab that stays open for days must not collect them.
  if (performance.getEntriesByName("apply").length > 200) performance.clearMeasures("apply");
  performance.measure("apply", { start, detail: { event, nodes: changed.size } });
}

function showEverything() {
  showFilters();
  showTotals();
  showPlots();
  showWaiting();
  showNamespaces();
  showInterrupted();
  showUseNotes();
  for (const shown of state.elements.values()) shown.filled = null;
  showNodes(new Set(state.nodes.keys()), []);
}

function showUseNotes() {
  byId("use-notes").hidden = !state.sections.use_notes.length;
  byId("use-notes").textContent = state.sections.use_notes.join("; ");
}

function showStatus() {
  const status = byId("status");
  status.dataset.state = state.connection === "live" ? "live" : state.connection === "broken" ? "broken" : "connecting";
  status.textContent = t(state.connection) + (state.problem && state.connection === "broken" ? ` (${state.problem})` : "");
}

function showInterrupted() {
  const { resourcequotas, ...others } = state.sections.interrupted;
  const line = byId("interrupted");
  line.hidden = !Object.keys(others).length;
  line.textContent = line.hidden ? "" : `${t("interrupted")}: ${Object.entries(others).map(([what, why]) => `${what}: ${why}`).join("; ")}`;
}

// Overview.

function showTotals() {
  const totals = state.sections.totals;
  const entries = [
    [`${totals.nodes}`, totals.nodes === 1 ? t("nodeWord") : t("nodesWord")],
    [`${totals.cards}`, t("cards") + (totals.unhealthy ? `, ${totals.unhealthy} ${t("unhealthy")}` : "")],
    [percent(totals.fill), t("cardsHeld")],
    [`${totals.waiting}`, t("waiting")],
  ];
  byId("totals").replaceChildren(...entries.map(([value, label]) => make("li", {}, make("b", {}, value), label)));
  byId("vendors").replaceChildren(...totals.vendors.map((each) => {
    const { title, colour } = vendorOf(each.kind);
    const words = `${title}: ${t("vendorCards", each.cards)}, ${t("used", each.used, amount(each.size, each.unit))}` +
      (each.unhealthy ? `, ${each.unhealthy} ${t("unhealthy")}` : "");
    return make("li", { "data-vendor": each.kind, "data-used": each.used, "data-size": each.size },
      make("span", { class: `key ${colour}`, "aria-hidden": "true" }), words);
  }));
  byId("version").textContent = `accelshare ${state.sections.about.version}`;
}

function vendorOf(kind) {
  const index = state.sections.about.vendors.findIndex((vendor) => vendor.kind === kind);
  const vendor = state.sections.about.vendors[index] ?? { title: kind, noun: kind };
  return { ...vendor, colour: `v${Math.max(0, index) % COLOURS}` };
}

function showPlots() {
  const points = state.sections.history;
  const plots = [["fill", 1, percent, 1], ["fragmentation", 2, percent, 1], ["waiting", 3, String, 0]];
  byId("plots").replaceChildren(...plots.map(([name, column, words, most]) => plot(t(name), points, column, words, most)));
}

function plot(title, points, column, words, most) {
  const values = points.map((point) => point[column]);
  const last = values.at(-1) ?? 0, low = Math.min(...values), high = Math.max(...values);
  const start = points[0]?.[0] ?? 0, span = Math.max(60, (points.at(-1)?.[0] ?? 0) - start), top = most || Math.max(1, high);
  const hours = Math.max(0.1, Math.round(span / 360) / 10);
  const places = points.map((point) => `${(((point[0] - start) / span) * 200).toFixed(1)},${(49 - (point[column] / top) * 46).toFixed(1)}`);
  const label = `${title}: ${t("now", words(last))}, ${t("lastHours", hours, words(low), words(high))}`;
  const end = places.at(-1) ?? "0,49";
  const line = [...places, `200,${end.split(",")[1]}`].join(" ");
  return make("li", { title: title === t("fragmentation") ? t("fragmentationHelp") : null },
    make("b", {}, words(last)), title,
    makeSvg("svg", { viewBox: "0 0 200 50", preserveAspectRatio: "none", role: "img", "aria-label": label },
      makeSvg("polygon", { class: "plot-area", points: `0,49 ${line} 200,49` }),
      makeSvg("line", { class: "plot-base", x1: 0, x2: 200, y1: 49, y2: 49 }),
      makeSvg("polyline", { class: "plot-line", points: line })));
}

// Filters.

function showFilters() {
  const { namespaces = [], waiting = [], about } = state.sections;
  const names = new Set([...namespaces.map((each) => each.name), ...waiting.map((pod) => pod.namespace)]);
  if (state.filter.namespace) names.add(state.filter.namespace);
  options(byId("namespace"), [...names].sort(collator.compare).map((name) => [name, name]), state.filter.namespace);
  options(byId("vendor"), about.vendors.map((vendor) => [vendor.kind, vendor.title]), state.filter.vendor);
}

function options(select, entries, chosen) {
  const wanted = [["", t("all")], ...entries];
  if (JSON.stringify(wanted) === select.dataset.entries) return;  // an open list must not close under the reader
  select.dataset.entries = JSON.stringify(wanted);
  select.replaceChildren(...wanted.map(([value, label]) => make("option", { value }, label)));
  select.value = chosen;
}

function matches(node) {
  const { text, vendor, namespace } = state.filter;
  const pods = () => [...node.cards.flatMap((card) => card.pods), ...node.unplaced];
  if (vendor && !node.cards.some((card) => card.kind === vendor) && !node.unplaced.some((pod) => pod.kind === vendor)) return false;
  if (namespace && !pods().some((pod) => pod.namespace === namespace)) return false;
  if (!text || node.name.toLowerCase().includes(text) || node.address.includes(text)) return true;
  return node.cards.some((card) => card.model.toLowerCase().includes(text)) || pods().some((pod) => `${pod.namespace}/${pod.name}`.includes(text));
}

function matchesPod(pod) {
  const { text, vendor, namespace } = state.filter;
  return (!namespace || pod.namespace === namespace) && (!vendor || pod.kinds.includes(vendor)) && (!text || `${pod.namespace}/${pod.name}`.includes(text));
}

function filterChanged() {
  state.filter = { text: byId("search").value.trim().toLowerCase(), vendor: byId("vendor").value, namespace: byId("namespace").value };
  if (!("totals" in state.sections)) return;
  showWaiting();
  showNamespaces();
  for (const shown of state.elements.values()) shown.filled = null;
  showNodes(new Set(state.nodes.keys()), []);
}

// Waiting pods, namespaces.

function showWaiting() {
  const pods = state.sections.waiting.filter(matchesPod), all = state.sections.totals.waiting;
  byId("waiting-count").textContent = `(${all > state.sections.waiting.length ? t("listed", state.sections.waiting.length, all) : pods.length})`;
  if (!pods.length) {
    byId("waiting").replaceChildren(make("p", { class: "empty" }, all ? t("noMatch") : t("nobodyWaits")));
    return;
  }
  const rows = pods.map((pod) => make("tr", { "data-pod": `${pod.namespace}/${pod.name}` },
    make("th", { scope: "row" }, podButton(pod), make("br"), make("small", {}, pod.request)),
    make("td", { class: "number", "data-created": pod.created }, age(pod.created)),
    make("td", {}, make("ul", {}, ...reasons(pod).map((reason) => make("li", {}, reason))))));
  byId("waiting").replaceChildren(table([t("pod"), t("since"), t("reason")], rows, "waiting-title"));
}

function reasons(pod) {
  if (pod.fits) return [t("fits", pod.fits)];
  if (!pod.reasons.length) return [t("notCompared")];
  return pod.reasons.map(({ code, text, nodes }) => {
    const words = state.language === "zh" ? REASONS_ZH[code] ?? text : text;
    return nodes ? `${words} (${nodes} ${nodes === 1 ? t("nodeWord") : t("nodesWord")})` : `${t("requestWrong")}: ${words}`;
  });
}

function table(heads, rows, labelledBy) {
  return make("table", { "aria-labelledby": labelledBy },
    make("thead", {}, make("tr", {}, ...heads.map((head) => make("th", { scope: "col" }, head)))), make("tbody", {}, ...rows));
}

function podButton(pod) {
  const name = `${pod.namespace}/${pod.name}`;
  return make("button", { type: "button", class: "link", "aria-label": t("openPod", name), onclick: () => explainPod(pod.namespace, pod.name) }, name);
}

function showNamespaces() {
  const { namespace, vendor } = state.filter;
  const listed = state.sections.namespaces.filter((each) => !namespace || each.name === namespace);
  byId("namespaces-count").textContent = `(${listed.length})`;
  const refused = state.sections.interrupted?.resourcequotas;
  byId("quota-note").hidden = !refused;
  byId("quota-note").textContent = refused ? `${t("noQuotas")}: ${refused}` : "";
  const rows = listed.map((each) => {
    const held = Object.entries(each.held).filter(([kind]) => !vendor || kind === vendor);
    const quotas = each.quotas.filter((quota) => !vendor || quota.kind === vendor);
    return make("tr", { "data-namespace": each.name },
      make("th", { scope: "row" }, each.name),
      make("td", { class: "number" }, String(each.pods)),
      make("td", { class: "held" }, make("ul", {}, ...held.map(([kind, units]) => make("li", {}, `${vendorOf(kind).noun}: ${amount(units, unitOf(kind))}`)))),
      make("td", {}, make("ul", {}, ...quotas.map(quotaItem))));
  });
  byId("namespaces").replaceChildren(rows.length ? table([t("namespace"), t("pods"), t("held"), t("quota")], rows, "namespaces-title")
    : make("p", { class: "empty" }, t("noNamespaces")));
}

const unitOf = (kind) => state.sections.totals.vendors.find((vendor) => vendor.kind === kind)?.unit ?? "";

function quotaItem(quota) {
  const words = `${quota.resource}: ${t("used", quota.used, quota.hard)}`;
  return make("li", {}, words, make("meter", { min: 0, max: Math.max(1, quota.hard), value: quota.used, high: quota.hard * 0.9, "aria-label": `${quota.quota}, ${words}` }));
}

// Nodes. Each has an element; its cards are made when it comes near the window.

const nearWindow = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    const shown = state.elements.get(entry.target.dataset.node);
    if (shown === undefined || shown.element !== entry.target) continue;
    shown.near = entry.isIntersecting;
    if (shown.near) fill(shown);
  }
}, { rootMargin: AHEAD });

function showNodes(changed, removed) {
  const list = byId("nodes");
  for (const name of removed) {
    const shown = state.elements.get(name);
    if (shown === undefined) continue;
    nearWindow.unobserve(shown.element);
    shown.element.remove();
    state.elements.delete(name);
  }
  let added = false;
  for (const name of changed) {
    if (state.elements.has(name)) continue;
    const element = make("li", { class: "node", "data-node": name });
    state.elements.set(name, { name, element, near: false, filled: null });
    added = true;
  }
  if (added) {
    const order = [...state.elements.keys()].sort(collator.compare);
    state.elements = new Map(order.map((name) => [name, state.elements.get(name)]));
    let before = list.firstElementChild;
    for (const { element } of state.elements.values()) {
      if (element === before) before = before.nextElementSibling;
      else { list.insertBefore(element, before); nearWindow.observe(element); }
    }
  }
  let matching = 0;
  for (const shown of state.elements.values()) {
    const node = state.nodes.get(shown.name);
    const visible = matches(node);
    matching += visible;
    if (shown.element.hidden === visible) shown.element.hidden = !visible;
    if (visible && shown.near && shown.filled !== node) fill(shown);
  }
  const all = state.elements.size;
  byId("nodes-count").textContent = `(${matching})`;
  const filtered = Object.values(state.filter).some((value) => value);
  byId("matches").textContent = filtered ? t("matches", matching, all) : "";
  let note = byId("no-nodes");
  if (!matching) {
    if (note === null) { note = make("li", { id: "no-nodes", class: "empty" }); list.append(note); }
    note.textContent = all ? t("noMatch") : t("noNodes");
  } else if (note !== null) note.remove();
}

function fill(shown) {
  const node = state.nodes.get(shown.name);
  if (node === undefined || shown.filled === node) return;
  const focused = shown.element.contains(document.activeElement) ? document.activeElement.dataset.card : undefined;
  const vendor = state.filter.vendor;
  const cards = node.cards.filter((card) => !vendor || card.kind === vendor);
  const notes = [...node.paused.map((kind) => `${vendorOf(kind).noun}: ${t("paused")}`), ...(node.known ? [] : [t("unknownNode")]), ...node.problems];
  shown.element.replaceChildren(
    make("header", {}, make("h3", {}, node.name), make("span", { class: "sum" }, sum(cards)), ...notes.slice(0, 3).map((note) => make("span", { class: "problem" }, `⚠ ${note}`))),
    make("ul", { class: "cards", "aria-label": `${t("nodes")}: ${node.name}` }, ...cards.map((card) => make("li", {}, cardButton(node, card)))),
    ...(node.unplaced.length ? [make("p", { class: "unplaced" }, `${t("unplaced")}: `, ...node.unplaced.map(unplacedPod))] : []));
  shown.filled = node;
  if (focused !== undefined) {
    const again = [...shown.element.querySelectorAll(".card")].find((card) => card.dataset.card === focused);
    if (again) again.focus();
  }
  if (state.active === null || !state.active.isConnected) setActive(document.querySelector(".card"));
}

function unplacedPod(pod) {
  return make("span", { "data-unplaced": `${pod.namespace}/${pod.name}` }, podButton(pod), ` ${pod.whole ? t("whole") : pod.units} `);
}

function sum(cards) {
  const kinds = [...new Set(cards.map((card) => card.kind))];
  return kinds.map((kind) => {
    const own = cards.filter((card) => card.kind === kind && card.present);
    const total = (field) => own.reduce((before, card) => before + card[field], 0);
    return `${own.length} ${vendorOf(kind).noun} ${onlyModel(cards, kind)}, ${t("used", total("used"), amount(total("size"), own[0]?.unit ?? ""))}`;
  }).join(" · ");
}

// The model that all cards of this vendor on the node have; it is then shown once.
function onlyModel(cards, kind) {
  const models = new Set(cards.filter((card) => card.kind === kind && card.present).map((card) => card.model));
  return models.size === 1 ? [...models][0] : "";
}

const cardKey = (card) => `${card.kind}/${card.index}/${card.id}`;
const isBad = (card) => !card.healthy || !card.present;
const podAmount = (pod, card) => (pod.whole ? t("whole") : amount(pod.units, card.unit));

function cardButton(node, card) {
  const vendor = vendorOf(card.kind), name = `${vendor.noun}${card.index}`, used = t("used", card.used, amount(card.size, card.unit));
  const health = card.present ? (card.healthy ? t("healthy") : t("unhealthy")) : t("gone");
  const pods = card.pods.map((pod) => [`${pod.namespace}/${pod.name} ${podAmount(pod, card)}`, useOf(pod.use)].filter(Boolean).join(", "));
  const label = [`${node.name} ${name}`, card.model, used, health, ...pods].filter(Boolean).join(", ");
  const namespace = state.filter.namespace;
  const bar = make("span", { class: "bar", "aria-hidden": "true" }, ...card.pods.map((pod) => {
    const classes = ["pod", pod.bound ? "" : "held", namespace && pod.namespace !== namespace ? "other" : ""].filter(Boolean).join(" ");
    const words = [`${pod.namespace}/${pod.name}`, podAmount(pod, card), pod.bound ? "" : t("notConfirmed"), useOf(pod.use)].filter(Boolean);
    const part = make("span", { class: classes, title: words.join(" · "), "data-pod": `${pod.namespace}/${pod.name}`, "data-units": pod.units }, pod.name, useMark(pod.use));
    part.style.flexGrow = String(Math.max(pod.units, 1));
    return part;
  }));
  const room = make("span", { class: "free" });
  room.style.flexGrow = String(Math.max(0, card.size - card.used));
  bar.append(room);
  return make("button", {
    type: "button", class: `card ${vendor.colour}${isBad(card) ? " bad" : ""}`, tabindex: "-1", "aria-label": label, "data-card": cardKey(card),
    "data-used": card.used, "data-size": card.size,
  }, make("span", { class: "top" }, make("span", { class: "name" }, `${name}${isBad(card) ? ` ${health}` : ""}${card.model && !onlyModel(node.cards, card.kind) ? ` · ${card.model}` : ""}`), make("span", { class: "amount" }, used)), bar);
}

// A line below the pod's name: the part of what it holds that it uses.
function useMark(use) {
  if (!use || !known(use.used_bytes) || !use.held_bytes) return null;
  const mark = make("span", { class: use.over_use ? "use over" : "use", "data-used-bytes": use.used_bytes });
  mark.style.width = percent(Math.min(1, use.used_bytes / use.held_bytes));
  return mark;
}

// Keys: one card is in the tab order, arrow keys move from there.

function setActive(card) {
  if (state.active !== null) state.active.tabIndex = -1;
  state.active = card;
  if (card !== null) card.tabIndex = 0;
}

function cardsOf(element) {
  fill(state.elements.get(element.dataset.node));
  return [...element.querySelectorAll(".card")];
}

function neighbour(card, key) {
  const node = card.closest(".node"), here = cardsOf(node), index = here.indexOf(card);
  const next = (element, way) => {
    do element = element[way]; while (element !== null && (element.hidden || !element.dataset.node || !cardsOf(element).length));
    return element;
  };
  switch (key) {
    case "ArrowRight": return here[index + 1] ?? (next(node, "nextElementSibling") && cardsOf(next(node, "nextElementSibling"))[0]);
    case "ArrowLeft": return here[index - 1] ?? (next(node, "previousElementSibling") && cardsOf(next(node, "previousElementSibling")).at(-1));
    case "ArrowDown": case "ArrowUp": {
      const other = next(node, key === "ArrowDown" ? "nextElementSibling" : "previousElementSibling");
      if (other === null) return null;
      const there = cardsOf(other);
      return there[Math.min(index, there.length - 1)];
    }
    case "Home": return here[0];
    case "End": return here.at(-1);
  }
  return undefined;
}

function onKey(event) {
  const card = event.target.closest?.(".card");
  if (event.key === "/" && !event.target.closest?.("input, select, dialog")) {
    event.preventDefault();
    byId("search").focus();
    return;
  }
  if (!card || event.altKey || event.ctrlKey || event.metaKey) return;
  const other = neighbour(card, event.key);
  if (other === undefined) return;
  event.preventDefault();
  if (!other) return;
  setActive(other);
  other.focus();
  other.scrollIntoView({ block: "nearest" });
}

function onCardClick(event) {
  const card = event.target.closest(".card");
  if (!card) return;
  setActive(card);
  const pod = event.target.closest(".pod");
  if (pod) {
    const [namespace, name] = pod.dataset.pod.split("/");
    explainPod(namespace, name);
    return;
  }
  const node = state.nodes.get(card.closest(".node").dataset.node);
  const shown = node?.cards.find((each) => cardKey(each) === card.dataset.card);
  if (shown) showCard(node, shown);
}

// Details.

function openDetails(title, ...content) {
  byId("details-title").textContent = title;
  byId("details-body").replaceChildren(...content);
  if (!byId("details").open) byId("details").showModal();
  byId("details-title").focus();
}

function definitions(entries) {
  return make("dl", {}, ...entries.filter(([, value]) => value !== "" && value !== null).flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]));
}

function showCard(node, card) {
  const vendor = vendorOf(card.kind);
  const health = card.present ? (card.healthy ? t("healthy") : t("unhealthy")) : t("gone");
  const delivery = node.delivery[card.kind];
  const facts = definitions([
    [t("vendor"), vendor.title], [t("model"), card.model], [t("hardwareId"), card.id], [t("health"), card.problem ? `${health}: ${card.problem}` : health],
    [t("allocated"), `${t("used", card.used, amount(card.size, card.unit))}, ${t("free", amount(card.free, card.unit))}`], [t("memoryInUse"), card.use && known(card.use.used_bytes) ? inBytes(card.use.used_bytes) : ""], [t("enforcedBy"), card.enforced_by],
    [t("minimum"), card.min_units ? amount(card.min_units, card.unit) : ""], [t("delivery"), delivery ? `${delivery.way}${delivery.works ? "" : ` (${t("paused")})`}` : ""],
    [t("address"), node.address],
  ]);
  const pods = card.pods.map((pod) => make("li", { class: pod.use?.over_use ? "wrong" : "" }, podButton(pod),
    ` ${[podAmount(pod, card), useOf(pod.use)].filter(Boolean).join(", ")}${pod.bound ? "" : ` (${t("notConfirmed")})`}`));
  const problems = node.problems.map((problem) => make("li", { class: "wrong" }, problem));
  openDetails(`${node.name} · ${vendor.noun}${card.index}`, facts, make("h3", {}, t("pods")), make("ul", { class: "lines" }, ...(pods.length ? pods : [make("li", {}, "–")])),
    ...(problems.length ? [make("ul", { class: "lines" }, ...problems)] : []));
}

async function explainPod(namespace, name) {
  openDetails(`${namespace}/${name}`, make("p", {}, t("explaining")));
  const asked = byId("details-body").firstElementChild;
  let content;
  try {
    const response = await ask(`api/explain?namespace=${encodeURIComponent(namespace)}&name=${encodeURIComponent(name)}`);
    const body = await response.json();
    content = response.ok ? explanation(body) : [make("p", { class: "wrong" }, body.error)];
  } catch (error) {
    content = [make("p", { class: "wrong" }, String(error.message ?? error))];
  }
  if (asked.isConnected) byId("details-body").replaceChildren(...content);
}

function explanation(body) {
  const lines = [make("p", {}, make("strong", {}, body.headline))];
  if (body.scheduler_message) lines.push(make("p", {}, `${t("scheduler")}: ${body.scheduler_message}`));
  for (const line of [...body.limits, ...body.place]) lines.push(make("p", {}, line));
  for (const line of body.mistakes) lines.push(make("p", { class: "wrong" }, `${t("wrong")}: ${line}`));
  if (body.in_short) lines.push(make("p", {}, body.in_short));
  for (const node of body.nodes) {
    lines.push(make("h3", {}, `${node.node} `, make("span", { class: node.serves ? "good" : "wrong" }, node.verdict)));
    const items = node.cards.map((card) => make("li", { class: card.bad ? "wrong" : "" }, [card.name, card.size, card.free, card.enforced, card.pods].filter(Boolean).join(", ")));
    if (node.missing) items.push(make("li", {}, `${t("missing")}: ${node.missing}`));
    items.push(...node.obstacles.map((line) => make("li", {}, `${t("obstacle")}: ${line}`)), ...node.remedies.map((line) => make("li", {}, `${t("remedy")}: ${line}`)));
    lines.push(make("ul", { class: "lines" }, ...items));
  }
  if (body.more) lines.push(make("p", {}, t("moreNodes", body.more)));
  for (const line of body.others) lines.push(make("p", {}, line));
  return lines;
}

// The connection.

function ask(path, options = {}) {
  const token = (() => { try { return sessionStorage.getItem("token"); } catch { return state.token; } })();
  const headers = { ...options.headers, ...(token ? { Authorization: `Bearer ${token}` } : {}) };
  return fetch(path, { cache: "no-store", credentials: "omit", ...options, headers });
}

function logIn() {
  byId("login-problem").textContent = state.asked ? t("wrongToken") : "";
  state.asked = true;
  byId("login").showModal();
  return new Promise((resolve) => {
    byId("login-form").addEventListener("submit", (event) => {
      event.preventDefault();
      state.token = byId("token").value;
      remember("sessionStorage", "token", state.token);
      byId("login").close();
      resolve();
    }, { once: true });
  });
}

function setConnection(connection, problem = "") {
  if (state.connection === connection && state.problem === problem) return;
  state.connection = connection;
  state.problem = problem;
  showStatus();
}

async function follow() {
  for (let failures = 0; ;) {
    const abort = new AbortController();
    let silence;
    const heard = () => { clearTimeout(silence); silence = setTimeout(() => abort.abort(), SILENCE_MS); };
    let problem = "";
    try {
      heard();
      const headers = state.lastEventId ? { "Last-Event-ID": state.lastEventId } : {};
      const response = await ask("api/events", { headers, signal: abort.signal });
      if (response.status === 401) { await logIn(); continue; }
      if (!response.ok) throw new Error(String(response.status));
      setConnection(state.lastEventId ? "live" : "listing");
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        heard();
        failures = 0;
        const parts = (rest + value).split("\n\n");
        rest = parts.pop();
        for (const part of parts) received(part);
      }
    } catch (error) {
      problem = error.name === "AbortError" ? "" : String(error.message ?? error);
    } finally {
      clearTimeout(silence);
    }
    setConnection("broken", problem);
    failures += 1;
    await new Promise((resolve) => setTimeout(resolve, Math.min(LONGEST_RETRY_MS, 250 * 2 ** Math.min(failures, 6)) * (0.5 + Math.random() / 2)));
  }
}

function received(part) {
  const fields = {};
  for (const line of part.split("\n")) {
    const colon = line.indexOf(": ");
    if (colon > 0) fields[line.slice(0, colon)] = line.slice(colon + 2);
  }
  if (!fields.data) return;
  apply(fields.event, JSON.parse(fields.data));
  state.lastEventId = fields.id;
  setConnection("live");
}

function start() {
  setLanguage(remembered("language") ?? (navigator.language.toLowerCase().startsWith("zh") ? "zh" : "en"));
  byId("language").addEventListener("change", (event) => { setLanguage(event.target.value); remember("localStorage", "language", state.language); });
  byId("filters").addEventListener("submit", (event) => event.preventDefault());
  for (const id of ["search", "vendor", "namespace"]) byId(id).addEventListener("input", filterChanged);
  byId("nodes").addEventListener("click", onCardClick);
  document.addEventListener("keydown", onKey);
  document.addEventListener("focusin", (event) => { if (event.target.classList?.contains("card")) setActive(event.target); });
  byId("details-close").addEventListener("click", () => byId("details").close());
  byId("login").addEventListener("cancel", (event) => event.preventDefault());
  setInterval(() => { for (const cell of document.querySelectorAll("[data-created]")) cell.textContent = age(cell.dataset.created); }, 30_000);
  follow();
}

start();
