// Owns what of a plan becomes hosts, cables, interfaces and containers.
//
// The input is a plan as emu/k8s makes it of manifests: which pod gets which functions of which
// NIC, and which addresses. The manifests that several tests share are those of tests/unit/emu/k8s;
// a test changes a few words of one of them by `changed`.
#include "emu/labs/pod_lab.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "emu/fabric/topology_yaml.hpp"
#include "emu/labs/container_words.hpp"
#include "tests/unit/emu/k8s/manifests.hpp"

namespace weft::labs {
namespace {

using k8s::changed;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;

// Those pods, on a cluster with the shared policy (which NICs there are) and network (which
// addresses).
k8s::PodPlan plan_of_pods(const std::string& pods, const k8s::PlanOptions& options = {}) {
  return k8s::plan_of(k8s::kPolicy, k8s::kNetwork, pods, options);
}

// One name for each cable: links are kept in pairs, one for each direction.
std::vector<std::string> link_names(const fabric::Topology& topology) {
  std::vector<std::string> names;
  for (fabric::LinkId link = 0; link < topology.links().size(); link += 2) {
    names.push_back(topology.link_name(link));
  }
  return names;
}

TEST(PodLab, FunctionsShareTheCableOfTheirNic) {
  const auto plan = plan_of_pods(k8s::kJob);
  const auto lab = make_pod_lab(plan, {});
  ASSERT_TRUE(lab) << lab.error().message;
  EXPECT_TRUE(lab->file.topology.validate());
  EXPECT_THAT(lab->file.nodes, SizeIs(64));
  EXPECT_THAT(lab->processes, SizeIs(64));
  EXPECT_THAT(lab->notes, IsEmpty());
  const auto names = link_names(lab->file.topology);
  EXPECT_THAT(names, SizeIs(64 + 8));  // a pod's, and one for each NIC of two nodes
  EXPECT_THAT(names, Contains("node1_ibs1f0->_fabric"));
  EXPECT_THAT(names, Contains("many-0->node1_ibs1f0"));
  EXPECT_EQ(lab->file.nodes[0].device, "rxe");
  EXPECT_EQ(lab->processes[0].restart, k8s::PodRestart::on_failure);
  // A Job's backoffLimit is 6 unless it says otherwise: so many times again.
  EXPECT_EQ(lab->processes[0].attempts, 7U);
  // weftd reads it from a file.
  const auto again =
      fabric::read_topology("t.yml", fabric::write_topology(lab->file.topology), ".");
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(again->links().size(), lab->file.topology.links().size());
}

// The plan's addresses are those that the program in the pod will look for on its interface.
TEST(PodLab, AnAddressOfWhereaboutsIsThatOfAnInterface) {
  const auto plan = plan_of_pods(k8s::kPod);
  const auto lab = make_pod_lab(plan, {});
  ASSERT_TRUE(lab) << lab.error().message;
  ASSERT_THAT(lab->file.more_networks, SizeIs(1));
  EXPECT_EQ(lab->file.more_networks[0].name, "default.ib-net");
  // The engine's own address is none of the pods'.
  EXPECT_THAT(lab->file.more_networks[0].subnets,
              ElementsAre(Pair("192.168.100.0/24", "192.168.100.254")));
  const LabNode& node = lab->file.nodes[0];
  ASSERT_THAT(node.interfaces, SizeIs(1));
  EXPECT_EQ(node.interfaces[0].name, "net1");
  EXPECT_THAT(node.interfaces[0].addresses, ElementsAre("192.168.100.1"));
  const LabIdentity identity{"k8s", "/run/k8s"};
  const Words words =
      run_node(EngineKind::podman, identity, lab->file, node, {}, {{"test-1", "10.89.0.2"}});
  EXPECT_THAT(words, Contains("weft-k8s:ip=10.89.0.2,interface_name=eth0"));
  EXPECT_THAT(words, Contains("weft-k8s-default.ib-net:ip=192.168.100.1,interface_name=net1"));
}

// Engines insist on a gateway in each network, which the pods' network does not have: so one of the
// addresses that are left. With as many pods as addresses none is left.
TEST(PodLab, TheGatewayIsAnAddressThatNobodyHas) {
  const std::string network = changed(k8s::kNetwork, "192.168.100.0/24\"",
                                      "192.168.100.0/29\", \"exclude\": [\"192.168.100.1/32\"]");
  const std::string job = changed(changed(k8s::kJob, "parallelism: 64", "parallelism: 5"),
                                  "completions: 64", "completions: 5");
  const auto plan = k8s::plan_of(k8s::kPolicy, network, job);
  const auto lab = make_pod_lab(plan, {});
  ASSERT_TRUE(lab) << lab.error().message;
  EXPECT_THAT(lab->file.more_networks[0].subnets,
              ElementsAre(Pair("192.168.100.0/29", "192.168.100.1")));
  const auto full = k8s::plan_of(k8s::kPolicy, changed(k8s::kNetwork, "0/24", "0/29"),
                                 changed(changed(k8s::kJob, "parallelism: 64", "parallelism: 6"),
                                         "completions: 64", "completions: 6"));
  EXPECT_THAT(make_pod_lab(full, {}).error().message, HasSubstr("no address left for the gateway"));
}

// A pod may be on one network twice; an engine connects a container to it once.
TEST(PodLab, WhatAnEngineCannotDoIsSaid) {
  const std::string twice =
      changed(changed(k8s::kPod, "networks: ib-net", "networks: ib-net,ib-net"),
              "requests: {openshift.io/mlnxnics: 1}\n        limits: {openshift.io/mlnxnics: 1}",
              "limits: {openshift.io/mlnxnics: 2}");
  const auto plan = plan_of_pods(twice);
  const auto lab = make_pod_lab(plan, {});
  ASSERT_TRUE(lab) << lab.error().message;
  EXPECT_THAT(lab->file.nodes[0].interfaces, SizeIs(1));
  ASSERT_THAT(lab->notes, SizeIs(1));
  EXPECT_THAT(lab->notes[0], HasSubstr("Pod default/test-1 has no interface net2"));
  EXPECT_EQ(lab->file.topology.ports().size(), 2U);  // but it has both functions
}

// The second pod's interface has an address that is the first one's, so it cannot be had; the other
// one of its addresses is left for the third.
TEST(PodLab, AnInterfaceThatCannotBeHadTakesNoAddress) {
  auto plan = plan_of_pods(changed(changed(k8s::kJob, "parallelism: 64", "parallelism: 3"),
                                   "completions: 64", "completions: 3"));
  ASSERT_THAT(plan.pods, SizeIs(3));
  plan.pods[0].devices[0].addresses = {"10.1.0.1/24", "10.2.0.1/24"};
  plan.pods[1].devices[0].addresses = {"10.1.0.2/24", "10.2.0.1/24"};
  plan.pods[2].devices[0].addresses = {"10.1.0.2/24", "10.2.0.3/24"};
  const auto lab = make_pod_lab(plan, {});
  ASSERT_TRUE(lab) << lab.error().message;
  ASSERT_THAT(lab->notes, SizeIs(1));
  EXPECT_THAT(lab->notes[0], HasSubstr("another pod has that address"));
  EXPECT_THAT(lab->file.nodes[1].interfaces, IsEmpty());
  ASSERT_THAT(lab->file.nodes[2].interfaces, SizeIs(1));
  EXPECT_THAT(lab->file.nodes[2].interfaces[0].addresses, ElementsAre("10.1.0.2", "10.2.0.3"));
}

TEST(PodLab, AnAddressGivenTwiceToOnePodIsSaid) {
  auto plan = plan_of_pods(k8s::kPod);
  plan.pods[0].devices[0].addresses = {"10.1.0.1/24", "10.1.0.1/24"};
  const auto lab = make_pod_lab(plan, {});
  ASSERT_TRUE(lab) << lab.error().message;
  ASSERT_THAT(lab->notes, SizeIs(1));
  EXPECT_THAT(lab->notes[0], HasSubstr("one address twice"));
  EXPECT_THAT(lab->file.nodes[0].interfaces, IsEmpty());
}

// Engines have a subnet once: pods with one and with two addresses of it are on one network.
TEST(PodLab, PodsOfOneSubnetAreOnOneNetwork) {
  auto plan = plan_of_pods(changed(changed(k8s::kJob, "parallelism: 64", "parallelism: 2"),
                                   "completions: 64", "completions: 2"));
  ASSERT_THAT(plan.pods, SizeIs(2));
  plan.pods[0].devices[0].addresses = {"10.1.0.1/24", "10.1.0.2/24"};
  plan.pods[1].devices[0].addresses = {"10.1.0.3/24"};
  const auto lab = make_pod_lab(plan, {});
  ASSERT_TRUE(lab) << lab.error().message;
  EXPECT_THAT(lab->notes, IsEmpty());
  ASSERT_THAT(lab->file.more_networks, SizeIs(1));
  EXPECT_THAT(lab->file.more_networks[0].subnets, SizeIs(1));
  EXPECT_EQ(lab->file.nodes[0].interfaces[0].network, lab->file.nodes[1].interfaces[0].network);
}

// Only the policy's NICs are shared by functions; a device of another plugin is a NIC with a cable
// of its own, to the same switch.
TEST(PodLab, DevicesOfOtherPluginsHaveCablesOfTheirOwn) {
  const std::string pod =
      changed(changed(k8s::kPod, "\n  annotations:\n    k8s.v1.cni.cncf.io/networks: ib-net", ""),
              "requests: {openshift.io/mlnxnics: 1}\n        limits: {openshift.io/mlnxnics: 1}",
              "limits: {vpc.amazonaws.com/efa: 2}");
  k8s::PlanOptions options;
  options.cluster.resources["vpc.amazonaws.com/efa"] = 4;
  const auto plan = plan_of_pods(pod, options);
  ASSERT_TRUE(plan.is_good()) << plan_text(plan);
  auto lab = make_pod_lab(plan, {});
  ASSERT_TRUE(lab) << lab.error().message;
  EXPECT_EQ(lab->file.nodes[0].device, "efa");
  EXPECT_THAT(link_names(lab->file.topology),
              ElementsAre("test-1->_fabric#0", "test-1->_fabric#1"));
  PodLabOptions other;
  other.devices["vpc.amazonaws.com/efa"] = "rxe";
  EXPECT_EQ(make_pod_lab(plan, other)->file.nodes[0].device, "rxe");
}

// The third pod names a network that is not there, so it would wait on a cluster for ever. One
// without devices is a container all the same: others may need what it serves.
TEST(PodLab, PodsThatDoNotStartAndPodsWithoutDevicesAreNoHosts) {
  const std::string bare =
      "---\napiVersion: v1\nkind: Pod\nmetadata: {name: bare}\nspec:\n"
      "  containers: [{name: c, image: debian}]\n";
  const std::string wrong = "---\n" + changed(changed(k8s::kPod, "test-1", "test-2"),
                                              "networks: ib-net", "networks: ib-nte");
  const auto plan = plan_of_pods(k8s::kPod + bare + wrong);
  const auto lab = make_pod_lab(plan, {});
  ASSERT_TRUE(lab) << lab.error().message;
  ASSERT_THAT(lab->file.nodes, SizeIs(2));
  EXPECT_FALSE(lab->file.nodes[1].has_nics);
  EXPECT_EQ(lab->file.topology.ports().size(), 1U);
  const auto nothing = plan_of_pods(bare.substr(4));
  EXPECT_THAT(make_pod_lab(nothing, {}).error().message,
              HasSubstr("no pod that starts has a device"));
}

// A pod with one of everything that a manifest can say of a container.
constexpr const char* kRich = R"yaml(apiVersion: v1
kind: Pod
metadata: {name: rich, labels: {app: rich}}
spec:
  restartPolicy: Never
  securityContext: {runAsUser: 1000}
  initContainers: [{name: first, image: debian}]
  volumes: [{name: scratch, emptyDir: {medium: Memory}}, {name: keys, secret: {secretName: k}}]
  containers:
    - name: main
      image: mellanox/test
      command: [ib_send_lat, $(SIDE)]
      args: ["$$(SIDE)", $(NONE)]
      env:
        - {name: SIDE, value: left}
        - {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
        - {name: IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
      volumeMounts: [{name: scratch, mountPath: /dev/shm}, {name: keys, mountPath: /keys}]
      securityContext:
        runAsGroup: 7
        readOnlyRootFilesystem: true
        allowPrivilegeEscalation: false
        capabilities: {drop: [ALL], add: [IPC_LOCK]}
      resources: {limits: {openshift.io/mlnxnics: 1, memory: 256Mi, cpu: 500m}}
    - {name: side, image: debian, args: [hello]}
---
apiVersion: v1
kind: Service
metadata: {name: server}
spec: {selector: {app: rich}, clusterIP: None}
)yaml";

// A Deployment's pods have other names on a cluster, a pod's second container is called after both,
// and pods of two namespaces have both names: whatever is equal here is told apart.
TEST(PodLab, NoTwoNodesHaveOneName) {
  k8s::PlanOptions options;
  options.cluster.resources["vpc.amazonaws.com/efa"] = 8;
  const auto pod = [](const std::string& name, const std::string& name_space) {
    return "---\napiVersion: v1\nkind: Pod\nmetadata: {name: " + name +
           ", namespace: " + name_space +
           "}\nspec: {containers: [{name: c, image: b, resources: {limits: "
           "{vpc.amazonaws.com/efa: 1}}}, {name: d, image: b}]}\n";
  };
  const std::string deployment = R"(---
apiVersion: apps/v1
kind: Deployment
metadata: {name: x}
spec:
  template:
    spec: {containers: [{name: c, image: b, resources: {limits: {vpc.amazonaws.com/efa: 1}}}]}
)";
  const auto names = [&](const std::string& manifests) {
    std::vector<std::string> found;
    const auto plan = k8s::make_plan({{"a.yaml", manifests}}, options);
    const auto lab = make_pod_lab(plan, {});
    EXPECT_TRUE(lab) << lab.error().message;
    if (lab) {
      EXPECT_TRUE(lab->file.topology.validate());
      for (const LabNode& node : lab->file.nodes) {
        found.push_back(node.name);
      }
    }
    return found;
  };
  EXPECT_THAT(names(pod("x-0", "default") + deployment),
              ElementsAre("default.x-0", "default.x-0.d", "default.x-0.2"));
  EXPECT_THAT(names(pod("a", "n") + pod("a", "n")),
              ElementsAre("n.a", "n.a.d", "n.a.2", "n.a.2.d"));
  EXPECT_THAT(names(pod("a", "n") + pod("a.d", "n")), ElementsAre("a", "a.d", "a.d.2", "a.d.2.d"));
  EXPECT_THAT(names(pod("b", "a") + pod("b", "c") + pod("a.b", "n")),
              ElementsAre("a.b", "a.b.d", "c.b", "c.b.d", "a.b.2", "a.b.2.d"));
  // Switches have the names with underscores.
  for (const char* const name : {"_fabric", "node1_ibs1f0", "a/b", "a=b"}) {
    const auto plan = k8s::make_plan({{"a.yaml", pod(name, "n")}}, options);
    const auto lab = make_pod_lab(plan, {});
    ASSERT_FALSE(lab) << name;
    EXPECT_THAT(lab.error().message, HasSubstr("needs a name of at most 63 letters"));
  }
  const auto plan =
      k8s::make_plan({{"a.yaml", changed(pod("a", "n"), "{name: d", "{name: ../d")}}, options);
  EXPECT_THAT(make_pod_lab(plan, {}).error().message, HasSubstr("container '../d' of pod 'a'"));
}

// As entities of XML did to its readers.
TEST(PodLab, VariablesThatStandForEachOtherHaveAnEnd) {
  std::string variables = "{name: V0, value: " + std::string(64, 'x') + "}";
  for (int i = 1; i < 40; ++i) {
    const std::string before = "$(V" + std::to_string(i - 1) + ")";
    variables += ", {name: V" + std::to_string(i) + ", value: \"" + before + before + "\"}";
  }
  k8s::PlanOptions options;
  options.cluster.resources["vpc.amazonaws.com/efa"] = 1;
  const std::string pod =
      "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: c, image: b, "
      "resources: {limits: {vpc.amazonaws.com/efa: 1}}, env: [" +
      variables + "]}]}\n";
  const auto lab = make_pod_lab(k8s::make_plan({{"a.yaml", pod}}, options), {});
  ASSERT_FALSE(lab);
  EXPECT_THAT(lab.error().message,
              HasSubstr("a.yaml:1: container 'c': the variable V11 is longer"));
}

// An engine would read a comma as the next option, and a container has one interface of a name.
TEST(PodLab, NamesOfInterfacesAreNames) {
  for (const char* const name : {"a,alias=b", "a/b", "eth0", ".."}) {
    const std::string networks =
        "'[{\"name\": \"ib-net\", \"interface\": \"" + std::string(name) + "\"}]'";
    const auto plan = plan_of_pods(
        changed(k8s::kPod, "cni.cncf.io/networks: ib-net", "cni.cncf.io/networks: " + networks));
    const auto lab = make_pod_lab(plan, {});
    ASSERT_TRUE(lab) << lab.error().message;
    EXPECT_THAT(lab->file.nodes[0].interfaces, IsEmpty()) << name;
    EXPECT_THAT(lab->notes, SizeIs(1)) << name;
  }
}

// Variables in `$(NAME)` are Kubernetes' own: `$$` stands for one sign, and a name that is not
// there stays as it is.
TEST(PodLab, AContainerIsToldWhatItsManifestSays) {
  const auto plan = plan_of_pods(kRich);
  PodLabOptions options;
  options.images["mellanox/test"] = "localhost/test";
  const auto lab = make_pod_lab(plan, options);
  ASSERT_TRUE(lab) << lab.error().message;
  ASSERT_THAT(lab->file.nodes, SizeIs(2));
  const LabNode& node = lab->file.nodes[0];
  EXPECT_EQ(node.image, "localhost/test");
  EXPECT_EQ(node.entry_point, "ib_send_lat");
  EXPECT_THAT(node.command, ElementsAre("left", "$(SIDE)", "$(NONE)"));
  EXPECT_THAT(node.environment, ElementsAre(Pair("SIDE", "left"), Pair("NODE", "node1")));
  EXPECT_EQ(node.user, "1000:7");
  EXPECT_EQ(node.memory, "268435456");
  EXPECT_EQ(node.cpu, "0.5");
  EXPECT_THAT(node.options,
              ElementsAre("--tmpfs", "/dev/shm", "--read-only", "--security-opt=no-new-privileges",
                          "--cap-drop=ALL", "--cap-add=IPC_LOCK"));
  EXPECT_THAT(lab->file.other_users, ElementsAre(1000U));
  EXPECT_EQ(lab->processes[0].restart, k8s::PodRestart::never);
  EXPECT_THAT(lab->notes,
              ElementsAre(HasSubstr("init containers (first)"), HasSubstr("IP is not set"),
                          HasSubstr("nothing is mounted at /keys: volumes of kind secret")));
  // The second one has the network and the devices of the first.
  const LabNode& side = lab->file.nodes[1];
  EXPECT_EQ(side.name, "rich.side");
  EXPECT_EQ(side.beside, "rich");
  EXPECT_TRUE(side.has_nics);
  EXPECT_EQ(side.entry_point, "");
  EXPECT_THAT(side.command, ElementsAre("hello"));
  const LabIdentity identity{"a-b", "/run/a-b"};
  const Words words =
      run_node(EngineKind::podman, identity, lab->file, side, {}, {{"rich", "10.89.0.2"}});
  EXPECT_THAT(words, Contains("container:weft-a--b-rich"));
  EXPECT_THAT(words, Contains("weft-a--b-rich.side"));
  EXPECT_THAT(words, testing::Not(Contains("--hostname")));
  // Services are other names of pods.
  EXPECT_THAT(lab->file.aliases, Contains(Pair("server", "rich")));
  EXPECT_THAT(lab->file.aliases, Contains(Pair("server.default.svc.cluster.local", "rich")));
  EXPECT_THAT(lab->file.aliases, Contains(Pair("rich.server", "rich")));
}

// Ki and Mi are powers of 1024, k and M of 1000; a fraction of a core is written in thousandths.
// What is left over of a byte or of a thousandth is a whole one. Less than a hundredth of a core is
// one, as the kubelet has it.
TEST(PodLab, QuantitiesAreThoseOfTheApi) {
  const std::pair<const char*, const char*> bytes[] = {
      {"5120Mi", "5368709120"},
      {"1G", "1000000000"},
      {"1.5Ki", "1536"},
      {"0", "0"},
      {"1Pi", "1125899906842624"},
      {"1.1234567Pi", "1264899793871722"},
      {"2P", "2000000000000000"},
      {"7Ei", "8070450532247928832"},
      {"9E", "9000000000000000000"},
      {"9223372036854775807", "9223372036854775807"},
      {"128974848000m", "128974848"},
      {"1e3", "1000"},
      {"12E2", "1200"},
      {"1500m", "2"},
      {"1.001k", "1001"},
      {"1e-4294967295", "1"},
      {"0e4294967295", "0"}};
  for (const auto& [text, number] : bytes) {
    EXPECT_EQ(k8s::bytes_of_quantity(text), number) << text;
  }
  for (const char* text : {"", "Mi", "-1", "1X", "inf", "nan", "1e300", "1e3Ki", "1e4294967295",
                           "9223372036854775808", "8Ei", "16Ei", "18446744073709551616"}) {
    EXPECT_FALSE(k8s::bytes_of_quantity(text)) << text;
  }
  const std::pair<const char*, const char*> cores[] = {
      {"1500m", "1.5"}, {"2", "2"},     {"0.25", "0.25"}, {"50m", "0.05"}, {"1k", "1000"},
      {"1u", "0.01"},   {"9m", "0.01"}, {"11m", "0.011"}, {"0", "0"}};
  for (const auto& [text, number] : cores) {
    EXPECT_EQ(k8s::cores_of_quantity(text), number) << text;
  }
  for (const char* text : {"", "m", "-1", "1X", "inf", "nan", "1e300", "18446744073709551615"}) {
    EXPECT_FALSE(k8s::cores_of_quantity(text)) << text;
  }
}

}  // namespace
}  // namespace weft::labs
