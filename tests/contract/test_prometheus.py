"""A real Prometheus scrapes extender and agent as the docs tell it to, and every query of docs, alerts and dashboard works there.

Debian builds Prometheus without Kubernetes' discovery, so the test gives it the labels that the discovery would give for the pods
of the chart; the docs' relabelling decides what is scraped.
"""

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import aiohttp
import pytest
import yaml

from accelshare.testing.api_server import FakeApiServer
from cluster.debian_programs import PROMETHEUS, ensure
from cluster.errors import ClusterError
from cluster.https import free_port
from cluster.process import Process
from cluster.waiting import wait_until_async
from tests.contract import test_docs as docs
from tests.contract.agent.fake_node import MEMORY, NODE, open_fake_node
from tests.contract.chart.rendered_objects import SECOND, objects, preset
from tests.contract.fake_cluster import FakeCluster
from tests.contract.test_monitoring import COST_PAGES, PAGES, RECORDING_RULES, ROOT, RULES, add_card, expressions, rules

LIMIT_S = 180.0
OF_SPEED = {"AccelshareFilterSlow"}  # a machine that runs tests may be as busy as it says
# Queries that are empty while all is well, beside the alerts.
EMPTY_WHEN_WELL = {
    "panel Nodes refused a second, by reason",
    "panel Pods that wait for their cards",
    "panel Drift",
    "panel More in use than held, and used by others",
    "panel Pods that hold cards and do not use them",
}


def discovered(ports: dict[str, int]) -> Iterator[dict[str, Any]]:
    """One target for each container port of the chart's pods, as Kubernetes' discovery shows it, on the ports in use here."""
    for thing in objects(*preset("gpushare"), *SECOND):
        if thing["kind"] not in ("Deployment", "DaemonSet"):
            continue
        template = thing["spec"]["template"]
        if template["metadata"]["labels"].get("app.kubernetes.io/part-of") != "accelshare":
            continue
        for container in template["spec"]["containers"]:
            for port in container.get("ports", [{}]):
                component = template["metadata"]["labels"]["app.kubernetes.io/component"]
                here = ports.get(f"{component}/{port.get('name')}", 1)
                labels = {
                    "__meta_kubernetes_namespace": "kube-system",
                    "__meta_kubernetes_pod_name": f"{thing['metadata']['name']}-x",
                    "__meta_kubernetes_pod_node_name": NODE,
                    "__meta_kubernetes_pod_container_port_name": port.get("name", ""),
                }
                for name, value in template["metadata"]["labels"].items():
                    labels["__meta_kubernetes_pod_label_" + re.sub(r"[^A-Za-z0-9_]", "_", name)] = value
                yield {"targets": [f"127.0.0.1:{here}"], "labels": labels}


class Prometheus:
    def __init__(self, process: Process, url: str, session: aiohttp.ClientSession) -> None:
        self.process = process
        self._url = url
        self._session = session

    async def get(self, path: str, **params: str) -> Any:
        """The answer's data; a query that Prometheus refuses fails the test with its message."""
        async with self._session.get(f"{self._url}/api/v1/{path}?{urlencode(params)}") as answer:
            content = await answer.json()
        assert content["status"] == "success", (params, content)
        return content["data"]

    async def series(self, query: str) -> list[dict[str, str]]:
        return [entry["metric"] for entry in (await self.get("query", query=query))["result"]]

    async def until(self, condition: Any, what: str) -> Any:
        return await wait_until_async(condition, what, LIMIT_S, 0.2, evidence=self.process.last_lines)

    async def is_ready(self) -> bool:
        assert self.process.running, self.process.last_lines()
        with contextlib.suppress(aiohttp.ClientError):
            async with self._session.get(f"{self._url}/-/ready") as answer:
                return answer.status == 200
        return False


@contextlib.asynccontextmanager
async def open_prometheus(
    directory: Path, page: str, ports: dict[str, int], session: aiohttp.ClientSession
) -> AsyncIterator[Prometheus]:
    """Prometheus with the scrape configuration of this page, our rules, and the prices of the page about costs."""
    program = ensure(PROMETHEUS, print)
    (scrape,) = [block.text for block in docs.blocks(ROOT / page) if block.text.startswith("scrape_configs:")]
    configuration = yaml.safe_load(scrape)
    for job in configuration["scrape_configs"]:
        (discovery,) = job.pop("kubernetes_sd_configs")
        assert discovery["selectors"] == [{"role": "pod", "label": "app.kubernetes.io/part-of=accelshare"}]
        job["static_configs"] = list(discovered(ports))
    configuration["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    directory.mkdir()
    (prices,) = [block.text for block in docs.blocks(ROOT / COST_PAGES[0]) if block.text.startswith("groups:")]
    (directory / "prices.yaml").write_text(prices.replace("kunlun", "acme"))  # the vendor of this cluster
    configuration["rule_files"] = [str(RULES), str(RECORDING_RULES), str(directory / "prices.yaml")]
    (directory / "prometheus.yml").write_text(yaml.safe_dump(configuration))
    address = f"127.0.0.1:{free_port()}"
    flags = [f"--config.file={directory / 'prometheus.yml'}", f"--storage.tsdb.path={directory / 'data'}"]
    flags += [f"--web.listen-address={address}", "--log.level=warn"]
    process = Process("prometheus", [program, *flags], directory / "prometheus.log")
    try:
        prometheus = Prometheus(process, f"http://{address}", session)
        await prometheus.until(prometheus.is_ready, "Prometheus is ready")
        yield prometheus
    finally:
        process.kill()


@contextlib.asynccontextmanager
async def open_scraped_cluster(directory: Path, page: str) -> AsyncIterator[Prometheus]:
    """Extender, agent with one card, one bound pod, one pending pod, and Prometheus."""
    for name in ("node", "fakes", "cluster"):
        (directory / name).mkdir()
    async with open_fake_node(directory / "node") as node, aiohttp.ClientSession() as session:
        flags = add_card(node, directory / "fakes", used_mib=128)
        cluster = FakeCluster(node.api, directory / "cluster", session)
        probes = free_port()
        try:
            async with node.kubelet():
                await node.start_agent(*flags)
                show_agent(node.api)
                await cluster.start_extender(f"--profiles={node.profiles}", f"--probe-port={probes}")
                ports = {"extender/probes": probes, "agent/probes": node.port}
                async with open_prometheus(directory / "prometheus", page, ports, session) as prometheus:
                    # Between two scrapes, so that rate() sees the first decisions.
                    await prometheus.until(lambda: has(prometheus, "accelshare_ready == 1"), "the extender was scraped")
                    for name, units in (("a", 4), ("b", 400)):
                        node.pod(name, {MEMORY: units})
                        await cluster.filter(node.read(name), NODE)
                    assert await cluster.bind(node.read("a"), NODE) == ""
                    await node.settled("a")
                    yield prometheus
        finally:
            if cluster.extender is not None:
                cluster.extender.kill()


def show_agent(api: FakeApiServer) -> None:
    """The agent's own pod, ready, as the extender sees it in a cluster."""
    spec = {"nodeName": NODE, "serviceAccountName": "accelshare-agent", "containers": [{"name": "agent", "image": "none"}]}
    metadata = {"name": "agent", "labels": {"accelshare.io/agent": "true"}}
    api.store.create("pods", {"metadata": metadata, "spec": spec}, namespace="kube-system")
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    api.store.patch("pods", "agent", {"status": status}, namespace="kube-system", subresource="status")


async def has(prometheus: Prometheus, query: str) -> bool:
    return bool(await prometheus.series(query))


def for_this_cluster(query: str) -> str:
    """Grafana's variables, and the names that the pages use as examples, as they are here."""
    query = query.replace("$__rate_interval", "1m").replace("$vendor", ".*").replace("$node", ".*").replace("$namespace", ".*")
    return query.replace('"minikube"', f'"{NODE}"').replace('"kunlun"', '"acme"')


def queries() -> Iterator[tuple[str, str]]:
    for place, expression, _ in expressions():
        yield place, for_this_cluster(expression)
    for page in (*PAGES, *COST_PAGES):
        for block in docs.blocks(ROOT / page):
            if block.language == "text":
                yield page, for_this_cluster(block.text)
    yield COST_PAGES[0], "namespace:card_cost:hour"  # the recipe for OpenCost shows it beside OpenCost's own costs


@pytest.fixture(scope="module", autouse=True)
def prometheus_program() -> Path:
    try:
        return ensure(PROMETHEUS, print)
    except ClusterError as error:
        pytest.skip(f"no Prometheus: {error}")


async def test_every_query_works_on_what_the_docs_scrape(tmp_path: Path) -> None:
    """Every query of docs, dashboard and rules is answered; those that should have data have some.

    With the scrape configuration of each page, all at once: series need their time.
    """
    places = [tmp_path / str(number) for number in range(len(PAGES))]
    for place in places:
        place.mkdir()
    await asyncio.gather(*map(every_query_works, places, PAGES))


async def every_query_works(directory: Path, page: str) -> None:
    alerts = {rule["alert"] for rule in rules()}
    async with open_scraped_cluster(directory, page) as prometheus:
        wanted = [query for place, query in queries() if place not in alerts | EMPTY_WHEN_WELL]
        missing = wanted

        async def all_have_data() -> bool:
            nonlocal missing
            missing = [query for query in missing if not await prometheus.series(query)]
            return not missing

        try:
            await prometheus.until(all_have_data, "every query has data")
        except Exception as error:
            raise AssertionError("without data: " + "\n".join(missing)) from error
        for _, query in queries():
            await prometheus.get("query", query=query)

        async def all_evaluated() -> list[dict[str, Any]]:
            found = [rule for group in (await prometheus.get("rules"))["groups"] for rule in group["rules"]]
            return found if all(rule["health"] != "unknown" for rule in found) else []

        evaluated = await prometheus.until(all_evaluated, "every rule was evaluated")
        assert [rule["name"] for rule in evaluated if rule["health"] != "ok"] == []

        async def at_peace() -> bool:
            found = [rule for group in (await prometheus.get("rules"))["groups"] for rule in group["rules"]]
            return {rule["name"] for rule in found if rule.get("state", "inactive") != "inactive"} <= OF_SPEED

        await prometheus.until(at_peace, "no alert is active in a healthy cluster")


async def test_what_the_docs_scrape_is_the_charts_extender_and_agents_with_the_pods_own_labels(tmp_path: Path) -> None:
    async with open_scraped_cluster(tmp_path, PAGES[0]) as prometheus:
        targets = (await prometheus.get("targets"))["activeTargets"]
        assert sorted((t["labels"]["job"], t["labels"]["instance"]) for t in targets) == [
            ("accelshare-agent", NODE),
            ("accelshare-extender", "gpushare-schd-extender-x"),
        ]
        bound = 'accelshare_pod_held_units{namespace="default", pod="a"}'
        await prometheus.until(lambda: has(prometheus, bound), "the bound pod was scraped")
        names = await prometheus.get("labels")
        assert [name for name in names if name.startswith("exported_")] == []


async def test_the_pod_monitor_of_the_chart_scrapes_as_the_docs_do() -> None:
    """The operator's names of the same fields."""
    thing = next(t for t in objects(*preset("gpushare"), "--set=metrics.podMonitor=true") if t["kind"] == "PodMonitor")
    (endpoint,) = thing["spec"]["podMetricsEndpoints"]
    assert endpoint["honorLabels"] is True
    (block,) = [b.text for b in docs.blocks(ROOT / PAGES[0]) if b.text.startswith("scrape_configs:")]
    (job,) = yaml.safe_load(block)["scrape_configs"]
    keep, *others = job["relabel_configs"]
    (components,) = [rule["values"] for rule in thing["spec"]["selector"]["matchExpressions"]]
    assert (keep["action"], keep["regex"]) == ("keep", f"({'|'.join(components)});{endpoint['port']}")
    camel = {"source_labels": "sourceLabels", "target_label": "targetLabel"}
    assert endpoint["relabelings"] == [{camel.get(key, key): value for key, value in rule.items()} for rule in others]
    assert json.dumps(thing).count("scheme") == 1
