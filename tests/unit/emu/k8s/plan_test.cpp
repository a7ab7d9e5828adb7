// Owns what pods get when all is well: nodes, virtual functions, addresses.
//
// Manifests are those of manifests.hpp (kPolicy: 8 virtual functions of each of four NICs;
// kNetwork: whereabouts over 192.168.100.0/24; kPod, kJob), changed in one place for each case.
// Where no manifest names nodes, a plan has two of them. Wrong manifests are in
// broken_manifests_test.cpp.
#include "emu/k8s/plan.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "tests/unit/emu/k8s/manifests.hpp"

namespace weft::k8s {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::string said(const PodPlan& plan) { return plan_text(plan); }

TEST(PodPlan, APodGetsAVirtualFunctionAndAnAddress) {
  const PodPlan plan = plan_of(kPolicy, kNetwork, kPod);
  EXPECT_TRUE(plan.is_good()) << said(plan);
  ASSERT_THAT(plan.nodes, SizeIs(2));
  EXPECT_TRUE(plan.nodes[0].is_virtual);
  EXPECT_EQ(plan.nodes[0].all("openshift.io/mlnxnics"), 32U);
  EXPECT_EQ(plan.nodes[0].free("openshift.io/mlnxnics"), 31U);
  ASSERT_THAT(plan.pods, SizeIs(1));
  EXPECT_EQ(plan.pods[0].node, "node1");
  ASSERT_THAT(plan.pods[0].devices, SizeIs(1));
  const PlannedDevice& device = plan.pods[0].devices[0];
  EXPECT_EQ(device.interface, "net1");
  EXPECT_EQ(device.device, "ibs1f0 VF 0");
  EXPECT_EQ(device.network, "default/ib-net");
  EXPECT_THAT(device.addresses, ElementsAre("192.168.100.1/24"));
}

// 64 pods on two nodes of 32 functions: all are used, and none twice.
TEST(PodPlan, ManyPodsGetFunctionsAndAddressesOfTheirOwn) {
  const PodPlan plan = plan_of(kPolicy, kNetwork, kJob);
  EXPECT_TRUE(plan.is_good()) << said(plan);
  ASSERT_THAT(plan.pods, SizeIs(64));
  std::set<std::string> devices;
  std::set<std::string> addresses;
  for (const PlannedPod& pod : plan.pods) {
    ASSERT_THAT(pod.devices, SizeIs(1));
    devices.insert(pod.node + pod.devices[0].device);
    addresses.insert(pod.devices[0].addresses.at(0));
  }
  EXPECT_THAT(devices, SizeIs(64));
  EXPECT_THAT(addresses, SizeIs(64));
  EXPECT_EQ(plan.pods[63].pod->name, "many-63");
}

// Where the manifests name nodes, only those are there. A policy applies to a node with its label,
// and to the NICs that it names: so one NIC of one node gives functions.
TEST(PodPlan, NodesOfManifestsHaveTheirOwnLabelsAndNics) {
  const std::string nodes = R"(apiVersion: v1
kind: List
items:
  - apiVersion: v1
    kind: Node
    metadata: {name: gpu1, labels: {feature.node.kubernetes.io/network-sriov.capable: "true"}}
  - apiVersion: v1
    kind: Node
    metadata: {name: cpu1}
---
apiVersion: sriovnetwork.openshift.io/v1
kind: SriovNetworkNodeState
metadata: {name: gpu1, namespace: sriov-network-operator}
status:
  interfaces:
    - {name: ibs1f0, vendor: "15b3", deviceID: 101b, pciAddress: "0000:3b:00.0", totalvfs: 16}
    - {name: eno1, vendor: "8086", deviceID: "1572", totalvfs: 64}
)";
  const PodPlan plan = make_plan({{"policy.yaml", kPolicy},
                                  {"network.yaml", kNetwork},
                                  {"nodes.yaml", nodes},
                                  {"pods.yaml", kPod}},
                                 {});
  EXPECT_TRUE(plan.is_good()) << said(plan);
  ASSERT_THAT(plan.nodes, SizeIs(2));
  EXPECT_EQ(plan.nodes[0].all("openshift.io/mlnxnics"), 8U);
  EXPECT_THAT(plan.nodes[1].devices, IsEmpty());
  EXPECT_EQ(plan.pods[0].node, "gpu1");
}

// `ibs1f0#0-2` is three functions of a NIC. Two policies may share it if their ranges do not touch.
TEST(PodPlan, PoliciesDivideANicByRanges) {
  const std::string halves =
      changed(kPolicy, "[ibs1f0, ibs1f1, ibs2f0, ibs2f1]", "[\"ibs1f0#0-2\"]") + "---\n" +
      changed(changed(changed(kPolicy, "[ibs1f0, ibs1f1, ibs2f0, ibs2f1]", "[\"ibs1f0#3-7\"]"),
                      "mlnxnics", "storage"),
              "name: ib", "name: other");
  const PodPlan plan = plan_of(halves, kNetwork, kPod);
  EXPECT_TRUE(plan.is_good()) << said(plan);
  EXPECT_EQ(plan.nodes[0].all("openshift.io/mlnxnics"), 3U);
  EXPECT_EQ(plan.nodes[0].all("openshift.io/storage"), 5U);
}

// The annotation of Multus has two forms. A network without an interface of its own gets the next
// netN.
TEST(PodPlan, AnnotationsAreNamesOrObjects) {
  const std::string two =
      changed(changed(changed(kPod, "mlnxnics: 1", "mlnxnics: 2"), "mlnxnics: 1", "mlnxnics: 2"),
              "networks: ib-net", "networks: default/ib-net@rdma0, ib-net");
  const PodPlan names = plan_of(kPolicy, kNetwork, two);
  EXPECT_TRUE(names.is_good()) << said(names);
  EXPECT_EQ(names.pods[0].devices[0].interface, "rdma0");
  EXPECT_EQ(names.pods[0].devices[1].interface, "net2");
  const std::string objects =
      changed(kPod, "networks: ib-net",
              "networks: '[{\"name\": \"ib-net\", \"namespace\": \"default\", "
              "\"interface\": \"rdma0\"}]'");
  const PodPlan json = plan_of(kPolicy, kNetwork, objects);
  EXPECT_TRUE(json.is_good()) << said(json);
  EXPECT_EQ(json.pods[0].devices[0].interface, "rdma0");
}

// The launcher asks for no device, and gets none.
TEST(PodPlan, AnMpiJobHasALauncherAndWorkers) {
  const std::string job = R"(apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {name: nccl}
spec:
  mpiReplicaSpecs:
    Launcher:
      template: {spec: {containers: [{name: launcher, image: mpi}]}}
    Worker:
      replicas: 3
      template:
        metadata: {annotations: {k8s.v1.cni.cncf.io/networks: ib-net}}
        spec:
          containers:
            - {name: worker, image: mpi, resources: {limits: {openshift.io/mlnxnics: 1}}}
)";
  const PodPlan plan = plan_of(kPolicy, kNetwork, job);
  EXPECT_TRUE(plan.is_good()) << said(plan);
  ASSERT_THAT(plan.pods, SizeIs(4));
  EXPECT_EQ(plan.pods[0].pod->name, "nccl-launcher");
  EXPECT_THAT(plan.pods[0].devices, IsEmpty());
  EXPECT_EQ(plan.pods[3].pod->name, "nccl-worker-2");
}

// No manifest says how many EFA devices a node has. Without --resource the pod finds none, which is
// a finding.
TEST(PodPlan, DevicesOfOtherPluginsAreSaidOnTheCommandLine) {
  const std::string efa = R"(apiVersion: v1
kind: Pod
metadata: {name: efa}
spec:
  containers:
    - name: a
      image: nccl
      resources:
        limits: {vpc.amazonaws.com/efa: 4, hugepages-2Mi: 5120Mi, memory: 8Gi, cpu: 2}
)";
  PlanOptions options;
  options.cluster.resources["vpc.amazonaws.com/efa"] = 4;
  const PodPlan plan = make_plan({{"efa.yaml", efa}}, options);
  EXPECT_TRUE(plan.is_good()) << said(plan);
  EXPECT_THAT(plan.pods[0].devices, SizeIs(4));
  EXPECT_FALSE(make_plan({{"efa.yaml", efa}}, {}).is_good());
}

// host-local knows only its own node: that two pods of different nodes get the same address is what
// a cluster does, and a trap that the plan has to show as it is.
TEST(PodPlan, HostLocalGivesTheSameAddressesOnEachNode) {
  const std::string network = R"(apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata:
  name: ib-net
  annotations: {k8s.v1.cni.cncf.io/resourceName: openshift.io/mlnxnics}
spec:
  config: '{"cniVersion": "0.3.1", "type": "sriov", "ipam": {"type": "host-local",
    "subnet": "10.56.217.0/24", "rangeStart": "10.56.217.171", "rangeEnd": "10.56.217.181"}}'
)";
  const PodPlan plan =
      plan_of(kPolicy, network, changed(kJob, "parallelism: 64", "parallelism: 2"));
  EXPECT_TRUE(plan.is_good()) << said(plan);
  ASSERT_THAT(plan.pods, SizeIs(2));
  EXPECT_NE(plan.pods[0].node, plan.pods[1].node);
  EXPECT_THAT(plan.pods[0].devices[0].addresses, ElementsAre("10.56.217.171/24"));
  EXPECT_THAT(plan.pods[1].devices[0].addresses, ElementsAre("10.56.217.171/24"));
}

// It has a gateway, which is the first one where none is said.
TEST(PodPlan, HostLocalKeepsTheGatewaysAddress) {
  const std::string ipam =
      changed(kNetwork, R"({"type": "whereabouts", "range": "192.168.100.0/24"})",
              R"({"type": "host-local", "ranges": [[{"subnet": "10.1.0.0/24"}],
      [{"subnet": "fd00::/64", "gateway": "fd00::2"}]]})");
  const PodPlan plan = plan_of(kPolicy, ipam, kPod);
  EXPECT_TRUE(plan.is_good()) << said(plan);
  EXPECT_THAT(plan.pods[0].devices[0].addresses, ElementsAre("10.1.0.2/24", "fd00::1/64"));
}

// Networks of one range share one account of addresses.
TEST(PodPlan, WhereaboutsGivesNoAddressTwiceInTwoNetworks) {
  const std::string second = changed(kNetwork, "name: ib-net", "name: second");
  const std::string pods = changed(kPod, "networks: ib-net", "networks: ib-net, second, ib-net");
  const std::string three = changed(changed(pods, "nics: 1", "nics: 3"), "nics: 1", "nics: 3");
  const PodPlan plan = plan_of(kPolicy, kNetwork + "---\n" + second, three);
  EXPECT_TRUE(plan.is_good()) << said(plan);
  std::set<std::string> addresses;
  for (const PlannedDevice& device : plan.pods[0].devices) {
    addresses.insert(device.addresses.at(0));
  }
  EXPECT_THAT(addresses, ElementsAre("192.168.100.1/24", "192.168.100.2/24", "192.168.100.3/24"));
}

TEST(PodPlan, WhereaboutsGivesAnAddressOfEachRange) {
  const std::string ipam =
      changed(kNetwork, R"("range": "192.168.100.0/24")",
              R"("ipRanges": [{"range": "10.0.0.0/29", "exclude": ["10.0.0.1", "10.0.0.4/30"]},
                      {"range": "fd00::10-fd00::11/64", "exclude": ["fd00::10/128"]}])");
  const PodPlan plan = plan_of(kPolicy, ipam, changed(kJob, "parallelism: 64", "parallelism: 2"));
  EXPECT_THAT(plan.pods[0].devices[0].addresses, ElementsAre("10.0.0.2/29", "fd00::11/64"));
  EXPECT_FALSE(plan.is_good());  // the second one finds no IPv6 address
}

// What is written for one half of the rack and what is written for the other one.
TEST(PodPlan, PoliciesForDifferentNodesHaveNodesEach) {
  const std::string halves =
      changed(kPolicy, "feature.node.kubernetes.io/network-sriov.capable: \"true\"",
              "kubernetes.io/hostname: left") +
      "---\n" +
      changed(changed(kPolicy, "feature.node.kubernetes.io/network-sriov.capable: \"true\"",
                      "kubernetes.io/hostname: right"),
              "name: ib", "name: other");
  const PodPlan plan = plan_of(halves, kNetwork, kJob);
  EXPECT_TRUE(plan.is_good()) << said(plan);
  ASSERT_THAT(plan.nodes, SizeIs(2));
  EXPECT_EQ(plan.nodes[0].name, "left");
  EXPECT_EQ(plan.nodes[1].name, "right");
  EXPECT_EQ(plan.nodes[1].all("openshift.io/mlnxnics"), 32U);
}

// Merged policies have as many functions as the larger one wants.
TEST(PodPlan, APolicyOfMorePriorityDoesNotTakeFunctionsAway) {
  const std::string halves =
      changed(changed(changed(kPolicy, "[ibs1f0, ibs1f1, ibs2f0, ibs2f1]", "[\"ibs1f0#0-1\"]"),
                      "numVfs: 8", "numVfs: 2"),
              "priority: 99", "priority: 10") +
      "---\n" +
      changed(changed(changed(kPolicy, "[ibs1f0, ibs1f1, ibs2f0, ibs2f1]", "[\"ibs1f0#2-7\"]"),
                      "mlnxnics", "storage"),
              "name: ib", "name: other");
  const PodPlan plan = plan_of(halves, kNetwork, kPod);
  EXPECT_TRUE(plan.is_good()) << said(plan);
  EXPECT_EQ(plan.nodes[0].all("openshift.io/mlnxnics"), 2U);
  EXPECT_EQ(plan.nodes[0].all("openshift.io/storage"), 6U);
}

// Init containers run one after the other and give back what they had; one that restarts always
// stays beside the others. A pod needs the most that it has at a time.
TEST(PodPlan, InitContainersHaveTheirDevicesBeforeTheOthers) {
  const std::string pod = changed(kPod, "  containers:\n", R"(  initContainers:
    - {name: a, image: b, resources: {limits: {openshift.io/mlnxnics: 3}}}
    - {name: c, image: d, restartPolicy: Always, resources: {limits: {openshift.io/mlnxnics: 1}}}
  containers:
)");
  const PodPlan plan = plan_of(kPolicy, kNetwork, pod);
  EXPECT_TRUE(plan.is_good()) << said(plan);
  EXPECT_THAT(plan.pods[0].devices, SizeIs(3));  // of 3, then of 1 that stays and 1
}

// A DaemonSet has as many pods as there are nodes, whatever it says of parallelism.
TEST(PodPlan, DaemonsAreOnEachNodeAndCronJobsAreJobs) {
  const std::string daemons = changed(changed(kJob, "kind: Job", "kind: DaemonSet"),
                                      "apiVersion: batch/v1", "apiVersion: apps/v1");
  const PodPlan plan = plan_of(kPolicy, kNetwork, daemons);
  EXPECT_TRUE(plan.is_good()) << said(plan);
  ASSERT_THAT(plan.pods, SizeIs(2));
  EXPECT_EQ(plan.pods[0].node, "node1");
  EXPECT_EQ(plan.pods[1].node, "node2");
  EXPECT_EQ(plan.pods[1].pod->name, "many-1");
  const PodPlan cron = plan_of(kPolicy, kNetwork, R"(apiVersion: batch/v1
kind: CronJob
metadata: {name: nightly}
spec:
  jobTemplate:
    spec: {parallelism: 3, template: {spec: {containers: [{name: a, image: b}]}}}
)");
  EXPECT_TRUE(cron.is_good()) << said(cron);
  EXPECT_THAT(cron.pods, SizeIs(3));
}

// As `kubectl get -o json` of several files gives them: without a list around them. A brace in a
// string ends nothing.
TEST(PodPlan, JsonObjectsMayFollowEachOther) {
  Findings findings;
  const auto manifests = load_manifests({"a.json", R"({"apiVersion": "v1", "kind": "Pod",
 "metadata": {"name": "a", "labels": {"x": "}{\""}}}
{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "b"}}
)"},
                                        findings);
  ASSERT_THAT(manifests, SizeIs(2));
  EXPECT_EQ(manifests[1].name, "b");
  EXPECT_EQ(manifests[1].place.line, 3);
}

TEST(PodPlan, IsThereForProgramsToo) {
  const auto json = nlohmann::json::parse(plan_json(plan_of(kPolicy, kNetwork, kPod)));
  EXPECT_EQ(json["nodes"][0]["resources"]["openshift.io/mlnxnics"], 32);
  EXPECT_EQ(json["pods"][0]["devices"][0]["addresses"][0], "192.168.100.1/24");
  EXPECT_EQ(json["findings"].size(), 0U);
  EXPECT_THAT(said(plan_of(kPolicy, kNetwork, kPod)),
              HasSubstr("openshift.io/mlnxnics: 32 (8 of ibs1f0, 8 of ibs1f1, 8 of ibs2f0, 8 of "
                        "ibs2f1)"));
}

}  // namespace
}  // namespace weft::k8s
