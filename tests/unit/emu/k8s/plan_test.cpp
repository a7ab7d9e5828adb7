// Owns what pods get when all is well: nodes, virtual functions, addresses.
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
