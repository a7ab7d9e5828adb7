// Owns what is said of manifests that do not work: where, what, and what to do.
//
// A row is three files, of which one is changed in one place, and what a person must read:
// FILE:LINE, what is wrong, and what to do. Pods that are not concerned start all the same. At the
// end are files that are no manifests, or do harm by their form.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <string>
#include <vector>

#include "emu/k8s/manifest.hpp"
#include "emu/k8s/plan.hpp"
#include "tests/unit/emu/k8s/manifests.hpp"

namespace weft::k8s {
namespace {

using ::testing::HasSubstr;

struct Broken {
  std::string name;
  std::string policy;
  std::string network;
  std::string pods;
  std::string place;  // FILE:LINE
  std::string what;
  std::string remedy;
  std::size_t started = 0;  // pods that start all the same
};

std::string sections(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) {
    all += "---\n" + text;
  }
  return all;
}

const std::string kPfs = "[ibs1f0, ibs1f1, ibs2f0, ibs2f1]";

// Policies.
std::vector<Broken> broken_policies() {
  const std::string twin =
      changed(changed(kPolicy, "name: ib", "name: second"), "mlnxnics", "more");
  const std::string node = R"(apiVersion: v1
kind: Node
metadata: {name: plain, labels: {role: worker}}
---
)";
  const std::string state =
      changed(node, "{role: worker}",
              "{feature.node.kubernetes.io/network-sriov.capable: \"true\"}") +
      R"(apiVersion: sriovnetwork.openshift.io/v1
kind: SriovNetworkNodeState
metadata: {name: plain}
status: {interfaces: [{name: ibs1f0, vendor: "15b3", deviceID: 101b, totalvfs: 4}]}
---
)";
  return {
      {"policy outside the operator's namespace",
       changed(kPolicy, "namespace: sriov-network-operator", "namespace: default"), kNetwork, kPod,
       "policy.yaml:4", "where the operator does not look", "metadata.namespace"},
      {"policy that selects no node", node + kPolicy, kNetwork, kPod, "policy.yaml:5",
       "selects no node: none has the label feature.node.kubernetes.io/network-sriov.capable=true",
       "kubectl label node"},
      {"NIC that is not there", state + changed(kPolicy, kPfs, "[ibs1fo]"), kNetwork, kPod,
       "policy.yaml:24", "selects no NIC of its nodes: there is no 'ibs1fo'",
       "did you mean 'ibs1f0'?"},
      {"more virtual functions than the NIC has", state + kPolicy, kNetwork, kPod, "policy.yaml:10",
       "asks for 8 VFs of ibs1f0 of plain, which can have 4", "numVfs: 4 at most"},
      {"two policies for one NIC", sections({kPolicy, twin}), kNetwork, kPod, "policy.yaml:21",
       "wants VFs of ibs1f0 of node1 that SriovNetworkNodePolicy ib has", "divide them", 1},
      {"two policies of one resource for one NIC",
       sections({changed(kPolicy, kPfs, "[\"ibs1f0#0-3\"]"),
                 changed(changed(kPolicy, kPfs, "[\"ibs1f0#4-7\"]"), "name: ib", "name: second")}),
       kNetwork, kPod, "policy.yaml:21", "keeps only the one that comes first", "two names", 1},
      {"a range of one function without its end", changed(kPolicy, kPfs, "[\"ibs1f0#3\"]"),
       kNetwork, kPod, "policy.yaml:15", "has the pfName 'ibs1f0#3'", "NAME#FIRST-LAST"},
      {"range beyond numVfs", changed(kPolicy, kPfs, "[\"ibs1f0#4-8\"]"), kNetwork, kPod,
       "policy.yaml:15", "takes the VFs 4-8 of 'ibs1f0', which has 8", "raise numVfs to 9"},
      {"no numVfs", changed(kPolicy, "  numVfs: 8\n", ""), kNetwork, kPod, "policy.yaml:7",
       "has no numVfs", "from 1 to"},
      {"misspelt field", changed(kPolicy, "numVfs: 8", "numVFs: 8"), kNetwork, kPod,
       "policy.yaml:11", "has no field 'numVFs'", "write 'numVfs'"},
      {"resource name with a dash",
       changed(kPolicy, "resourceName: mlnxnics", "resourceName: mlnx-nics"), kNetwork, kPod,
       "policy.yaml:7", "has the resourceName 'mlnx-nics'", "letters, digits and _"},
      {"RDMA of vfio", changed(kPolicy, "netdevice", "vfio-pci"), kNetwork, kPod, "policy.yaml:17",
       "asks for RDMA of virtual functions that vfio-pci takes", "deviceType: netdevice"},
      {"no YAML", "a: [", kNetwork, kPod, "policy.yaml:1", "is not valid YAML", "indentation"},
  };
}

// Networks, and pods' way to them.
std::vector<Broken> broken_networks() {
  return {
      {"network that is not there", kPolicy, kNetwork,
       changed(kPod, "networks: ib-net", "networks: ib-nte"), "pods.yaml:6",
       "attaches the network 'ib-nte', which nothing here makes", "did you mean 'ib-net'?"},
      {"network in another namespace", kPolicy,
       changed(kNetwork, "networkNamespace: default", "networkNamespace: ml"), kPod, "pods.yaml:6",
       "it is in namespace 'ml' (network.yaml:1)", "networkNamespace: default"},
      {"networkNamespace left out", kPolicy, changed(kNetwork, "  networkNamespace: default\n", ""),
       kPod, "pods.yaml:6", "it is in namespace 'sriov-network-operator'",
       "networkNamespace: default"},
      {"range that is too small", kPolicy, changed(kNetwork, "100.0/24", "100.0/28"), kJob,
       "network.yaml:1", "Pod default/many-14 gets no address: the range of 'ib-net' has 14",
       "a larger range", 14},
      {"range that is none", kPolicy, changed(kNetwork, "192.168.100.0/24", "192.168.100.0"), kPod,
       "network.yaml:10", "has the range '192.168.100.0'", "ADDRESS/LENGTH", 1},
      {"ipam that is no JSON", kPolicy, changed(kNetwork, "\"whereabouts\",", "\"whereabouts\""),
       kPod, "network.yaml:10", "ipam is not valid JSON", "double quotes", 1},
      {"network of a resource that nobody makes", kPolicy,
       changed(kNetwork, "resourceName: mlnxnics", "resourceName: mlnxnic"), kPod, "network.yaml:1",
       "takes devices of openshift.io/mlnxnic, which no policy makes",
       "did you mean openshift.io/mlnxnics?"},
      {"network that the pod does not ask for", kPolicy, kNetwork,
       changed(changed(kPod, "requests: {openshift.io/mlnxnics: 1}", "requests: {cpu: 1}"),
               "limits: {openshift.io/mlnxnics: 1}", "limits: {cpu: 1}"),
       "pods.yaml:6", "attaches 1 networks of openshift.io/mlnxnics and asks for 0 of it",
       "resources.limits: {openshift.io/mlnxnics: 1}"},
      {"two pods with one static address", kPolicy,
       changed(kNetwork, "\"whereabouts\", \"range\": \"192.168.100.0/24\"",
               "\"static\", \"addresses\": [{\"address\": \"10.0.0.7/24\"}]"),
       sections({kPod, changed(kPod, "test-1", "test-2")}), "network.yaml:1",
       "would have the address 10.0.0.7/24 that Pod default/test-1 has", "whereabouts", 2},
  };
}

// Pods, and what makes them.
std::vector<Broken> broken_pods() {
  return {
      {"unknown resource", kPolicy, kNetwork,
       changed(kPod, "limits: {openshift.io/mlnxnics", "limits: {openshift.io/mlnxnic"),
       "pods.yaml:14", "asks for openshift.io/mlnxnic, which no node has",
       "did you mean openshift.io/mlnxnics?"},
      {"resource without its prefix", kPolicy, kNetwork,
       changed(changed(kPod, "requests: {openshift.io/mlnxnics: 1}\n", ""),
               "        limits: {openshift.io/mlnxnics", "    limits: {nvidia.com/mlnxnics"),
       "pods.yaml:13", "asks for nvidia.com/mlnxnics", "did you mean openshift.io/mlnxnics?"},
      {"too few virtual functions", changed(kPolicy, "numVfs: 8", "numVfs: 7"), kNetwork, kJob,
       "pods.yaml:14", "Pod default/many-56 finds no free openshift.io/mlnxnics", "numVfs", 56},
      {"more devices than any node has", kPolicy, kNetwork,
       changed(kJob, "mlnxnics: \"1\"", "mlnxnics: \"33\""), "pods.yaml:14",
       "asks for 33 of openshift.io/mlnxnics; no node has more than 32", "ask for less"},
      {"pods in another namespace", kPolicy, kNetwork,
       changed(kPod, "name: test-1", "name: test-1\n  namespace: ml"), "pods.yaml:7",
       "attaches the network 'ib-net' of namespace 'ml'", "networkNamespace: ml"},
      {"pod that selects no node", kPolicy, kNetwork,
       changed(kPod, "spec:\n", "spec:\n  nodeSelector: {gpu: h100}\n"), "pods.yaml:1",
       "selects no node: none has the label gpu=h100", "--label gpu=h100"},
      {"request that is not the limit", kPolicy, kNetwork,
       changed(kPod, "requests: {openshift.io/mlnxnics: 1}",
               "requests: {openshift.io/mlnxnics: 2}"),
       "pods.yaml:14", "requests 2 and limits 1", "the same number", 1},
      {"half a device", kPolicy, kNetwork, changed(kJob, "mlnxnics: \"1\"", "mlnxnics: 500m"),
       "pods.yaml:14", "asks for '500m' of openshift.io/mlnxnics", "a whole number"},
      {"annotation of the job, not of its pods", kPolicy, kNetwork,
       changed(changed(kJob, "64\n  completions: 64", "1"), "metadata: {name: many}",
               "metadata: {name: many, annotations: {k8s.v1.cni.cncf.io/networks: ib-net}}"),
       "pods.yaml:3", "which its pods do not get", "template", 1},
      {"annotation that is a YAML list", kPolicy, kNetwork,
       changed(kPod, "networks: ib-net", "networks: [ib-net]"), "pods.yaml:6", "is no text",
       "quotes", 1},
      {"more devices than a number holds", kPolicy, kNetwork,
       changed(kPod, "    - name: test\n",
               "    - {name: b, image: c, resources: {limits: {openshift.io/mlnxnics: "
               "18446744073709551615}}}\n    - name: test\n"),
       "pods.yaml:15", "asks for 18446744073709551615", "ask for less"},
      {"init container that asks for more", kPolicy, kNetwork,
       changed(kPod, "  containers:\n",
               "  initContainers:\n    - {name: b, image: c, resources: {limits: "
               "{openshift.io/mlnxnics: 33}}}\n  containers:\n"),
       "pods.yaml:9", "asks for 33", "ask for less"},
      {"request in a merge key", kPolicy, kNetwork,
       "x: &many {openshift.io/mlnxnics: 33}\n" +
           changed(kPod, "limits: {openshift.io/mlnxnics: 1}", "limits: {<<: *many}"),
       "pods.yaml:1", "and limits 33", "the same number"},
      {"annotation that is no list", kPolicy, kNetwork,
       changed(kPod, "networks: ib-net", "networks: '[{name: ib-net}]'"), "pods.yaml:6",
       "is neither names with commas nor a JSON list", "NAMESPACE/NAME", 1},
      {"MPIJob without workers", kPolicy, kNetwork,
       "apiVersion: kubeflow.org/v1\nkind: MPIJob\nmetadata: {name: m}\nspec:\n  mpiReplicaSpecs:\n"
       "    Launcher: {template: {spec: {containers: [{image: a}]}}}\n",
       "pods.yaml:6", "has no Worker", "spec.mpiReplicaSpecs", 1},
      {"object twice", kPolicy, kNetwork, sections({kPod, kPod}), "pods.yaml:17",
       "Pod default/test-1 is here a second time", "another name", 2},
      {"no object", kPolicy, kNetwork, "- just\n- a list\n", "pods.yaml:1", "is no object",
       "apiVersion"},
      {"no kind", kPolicy, kNetwork, "apiVersion: v1\nmetadata: {name: x}\n", "pods.yaml:1",
       "an object without 'kind'", "give both"},
      {"no containers", kPolicy, kNetwork, "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\n",
       "pods.yaml:1", "has no containers", "spec.containers", 1},
  };
}

// Other findings may stand beside it: one mistake often leads to another.
TEST(BrokenManifests, EachIsSaidWithItsPlaceAndARemedy) {
  std::vector<Broken> all = broken_policies();
  std::ranges::copy(broken_networks(), std::back_inserter(all));
  std::ranges::copy(broken_pods(), std::back_inserter(all));
  for (const Broken& broken : all) {
    SCOPED_TRACE(broken.name);
    const PodPlan plan = plan_of(broken.policy, broken.network, broken.pods);
    EXPECT_FALSE(plan.is_good());
    const auto& list = plan.findings.list();
    const auto found = std::ranges::find_if(list, [&](const ManifestFinding& finding) {
      return finding.place.text() == broken.place && finding.is_error &&
             finding.what.find(broken.what) != std::string::npos &&
             finding.remedy.find(broken.remedy) != std::string::npos;
    });
    EXPECT_NE(found, list.end()) << plan_text(plan);
    EXPECT_EQ(
        std::ranges::count_if(plan.pods, [](const PlannedPod& pod) { return !pod.node.empty(); }),
        broken.started)
        << plan_text(plan);
  }
}

// whereabouts looks at all networks before it gives an address, unless it is told not to.
TEST(BrokenManifests, RangesThatOverlapAreAWarningWhereNobodyLooks) {
  const std::string second =
      changed(changed(kNetwork, "name: ib-net", "name: second"), "100.0/24", "100.128/25");
  EXPECT_EQ(plan_of(kPolicy, sections({kNetwork, second}), kPod).findings.list().size(), 0U);
  const std::string alone =
      changed(second, "\"range\"", "\"enable_overlapping_ranges\": false, \"range\"");
  const PodPlan plan = plan_of(kPolicy, sections({kNetwork, alone}), kPod);
  EXPECT_TRUE(plan.is_good()) << plan_text(plan);
  ASSERT_EQ(plan.findings.list().size(), 1U);
  EXPECT_THAT(plan.findings.list()[0].what, HasSubstr("hand out the same addresses"));
}

// An empty document hides none behind it, and lines are the file's.
TEST(BrokenManifests, DocumentsBehindEmptyOnesAreRead) {
  Findings findings;
  const auto manifests =
      load_manifests({"a.yaml", "---\n---\n# nothing\n...\n---\nkind: Pod\n"}, findings);
  EXPECT_TRUE(manifests.empty());
  ASSERT_EQ(findings.list().size(), 1U);
  EXPECT_EQ(findings.list()[0].place.line, 6);
}

TEST(BrokenManifests, ADocumentThatContainsItselfIsAnError) {
  Findings findings;
  EXPECT_TRUE(load_manifests({"a.yaml", "&a\napiVersion: v1\nkind: List\nitems: [*a]\n"}, findings)
                  .empty());
  ASSERT_EQ(findings.list().size(), 1U);
  EXPECT_THAT(findings.list()[0].what, HasSubstr("without end"));
}

// Ten times ten times ten ... values out of a few lines.
TEST(BrokenManifests, AliasesOfAliasesDoNotTakeForEver) {
  std::string text = "x0: &x0 {apiVersion: v1, kind: List, items: []}\n";
  for (int i = 1; i < 15; ++i) {
    text += "x" + std::to_string(i) + ": &x" + std::to_string(i) +
            " {apiVersion: v1, kind: List, items: [";
    for (int copy = 0; copy < 10; ++copy) {
      text += (copy == 0 ? "*x" : ", *x") + std::to_string(i - 1);
    }
    text += "]}\n";
  }
  Findings findings;
  (void)load_manifests({"a.yaml", text + "apiVersion: v1\nkind: List\nitems: [*x14]\n"}, findings);
  ASSERT_EQ(findings.list().size(), 1U);
  EXPECT_THAT(findings.list()[0].what, HasSubstr("too many values"));
}

TEST(BrokenManifests, AMalformedDocumentHidesNoneBehindIt) {
  Findings findings;
  const auto manifests = load_manifests({"a.yaml", "a: [\n---\n" + kPod}, findings);
  EXPECT_EQ(manifests.size(), 1U);
  EXPECT_EQ(findings.list().size(), 1U);
}

// A limit, so that a file cannot take for ever; but nobody may believe that the rest was looked at.
TEST(BrokenManifests, DocumentsThatAreNotReadAreSaid) {
  std::string text;
  for (int i = 0; i < 10'002; ++i) {
    text += "{a: 1}\n---\n";
  }
  Findings findings;
  (void)load_manifests({"a.yaml", text}, findings);
  EXPECT_THAT(findings.list().back().what, HasSubstr("document number 10001"));
}

// The parser looks through all keys of a map for one: with 20'000 on both sides that took 20 s.
TEST(BrokenManifests, ManyKeysAreMergedInNoTime) {
  constexpr int kKeys = 20'000;
  std::string text = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nbase: &base\n";
  for (int i = 0; i < kKeys; ++i) {
    text += "  b" + std::to_string(i) + ": 1\n";
  }
  text += "spec:\n  <<: *base\n  b7: 2\n";
  for (int i = 0; i < kKeys; ++i) {
    text += "  s" + std::to_string(i) + ": 1\n";
  }
  Findings findings;
  const auto begin = std::chrono::steady_clock::now();
  const auto manifests = load_manifests({"a.yaml", text}, findings);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds{5});
  ASSERT_EQ(manifests.size(), 1U);
  const YAML::Node spec = value_of(manifests[0].root, "spec");
  EXPECT_EQ(spec.size(), 2U * kKeys);
  EXPECT_EQ(text_of(value_of(spec, "b7")), "2");
  EXPECT_EQ(text_of(value_of(spec, "b19999")), "1");
}

// A few lines stand for more pods than memory has.
TEST(BrokenManifests, PodsHaveALimitHoweverTheyAreAskedFor) {
  constexpr const char* kDaemon = R"(---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: NAME}
spec: {template: {spec: {containers: [{name: a, image: b}]}}}
)";
  std::string daemons;
  for (int i = 0; i < 130; ++i) {
    daemons += changed(kDaemon, "NAME", "d" + std::to_string(i));
  }
  PlanOptions options;
  options.cluster.virtual_nodes = 1000;
  const PodPlan many = make_plan({{"a.yaml", daemons}}, options);
  EXPECT_EQ(many.pods.size(), PodBudget::kMaxPods);
  EXPECT_EQ(many.findings.list().size(), 30U);
  EXPECT_THAT(many.findings.list()[0].what, HasSubstr("DaemonSet default/d100: with its pods"));
  // Or more memory: each has a copy of the list of its networks.
  std::string names;
  for (int i = 0; i < 30'000; ++i) {
    names += "n,";
  }
  const PodPlan large = make_plan({{"a.yaml", R"(apiVersion: apps/v1
kind: Deployment
metadata: {name: large}
spec:
  replicas: 10000
  template:
    metadata: {annotations: {k8s.v1.cni.cncf.io/networks: ")" +
                                                  names + R"("}}
    spec: {containers: [{name: a, image: b}]}
)"}},
                                  {});
  EXPECT_EQ(large.pods.size(), 0U);
  ASSERT_EQ(large.findings.list().size(), 1U);
  EXPECT_THAT(large.findings.list()[0].what, HasSubstr("more than a plan can have"));
}

TEST(BrokenManifests, PodsOfKindsThatPlansDoNotKnowAreAWarning) {
  const std::string job = R"(apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: train}
spec:
  pytorchReplicaSpecs:
    Worker: {template: {spec: {containers: [{name: a, image: b}]}}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: containers}
data: {containers: none}
)";
  const PodPlan plan = plan_of(kPolicy, kNetwork, job);
  EXPECT_TRUE(plan.is_good());
  ASSERT_EQ(plan.findings.list().size(), 1U) << plan_text(plan);
  EXPECT_EQ(plan.findings.list()[0].place.text(), "pods.yaml:1");
  EXPECT_THAT(plan.findings.list()[0].what, HasSubstr("PyTorchJob default/train makes pods"));
}

TEST(BrokenManifests, WhatIsNotLookedAtIsAWarning) {
  const PodPlan plan = plan_of(kPolicy, kNetwork,
                               changed(kPod, "spec:\n", "spec:\n  affinity: {nodeAffinity: {}}\n"));
  EXPECT_TRUE(plan.is_good());
  ASSERT_EQ(plan.findings.list().size(), 1U) << plan_text(plan);
  EXPECT_THAT(plan.findings.list()[0].what, HasSubstr("nodeAffinity"));
}

// Terminals obey some characters, and a line is a line of ours.
TEST(BrokenManifests, WhatFilesSayIsPrintedAsLetters) {
  const std::string text = plan_text(plan_of(
      kPolicy, kNetwork, changed(kPod, "name: test-1", "name: \"a\\n9 of 9 pods start\\e[31m\"")));
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_EQ(text.find("\n9 of 9"), std::string::npos);
  EXPECT_THAT(text, HasSubstr("the API server refuses it otherwise"));
}

// Pods that want a device of each of two resources, on two nodes with two of each of them.
TEST(BrokenManifests, WhatNodesLackOfTwoResourcesIsTrue) {
  const auto policy = [](const std::string& selected) {
    return changed(changed(kPolicy, "feature.node.kubernetes.io/network-sriov.capable: \"true\"",
                           "kubernetes.io/hostname: " + selected),
                   "numVfs: 8", "numVfs: 2");
  };
  const auto one_nic = [&](const std::string& node, const std::string& resource) {
    const std::string nic = resource == "a" ? "[ibs1f0]" : "[ibs2f0]";
    return changed(changed(changed(policy(node), "name: ib", "name: " + node + "-" + resource),
                           "mlnxnics", resource),
                   kPfs, nic);
  };
  const std::string both = sections(
      {one_nic("left", "a"), one_nic("left", "b"), one_nic("right", "a"), one_nic("right", "b")});
  const auto pod = [](const std::string& name, const std::string& wanted,
                      const std::string& node = "") {
    return "apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + "}\nspec:\n" +
           (node.empty() ? "" : "  nodeName: " + node + "\n") +
           "  containers: [{name: c, image: d, resources: {limits: " + wanted + "}}]\n";
  };
  const auto said_of = [](const std::string& policies, const std::vector<std::string>& pods) {
    const PodPlan plan = make_plan({{"policy.yaml", policies}, {"pods.yaml", sections(pods)}}, {});
    EXPECT_EQ(plan.findings.list().size(), 1U) << plan_text(plan);
    return plan.findings.list().empty() ? "" : plan.findings.list()[0].what;
  };
  const std::string a_and_b = "{openshift.io/a: 1, openshift.io/b: 1}";
  // Both are free, but on different nodes.
  EXPECT_EQ(
      said_of(both, {pod("x", "{openshift.io/a: 2}", "left"),
                     pod("y", "{openshift.io/b: 2}", "right"), pod("z", a_and_b)}),
      "Pod default/z asks for 1 of openshift.io/a and 1 of openshift.io/b; the other pods have "
      "left them only on different nodes");
  // No node has both, whatever is free.
  EXPECT_EQ(said_of(sections({one_nic("left", "a"), one_nic("right", "b")}), {pod("z", a_and_b)}),
            "Pod default/z asks for 1 of openshift.io/a and 1 of openshift.io/b; no node has them "
            "together");
  // Of one there are some left, but too few for this pod.
  EXPECT_EQ(said_of(both, {pod("x", "{openshift.io/b: 1}", "left"),
                           pod("y", "{openshift.io/b: 1}", "right"),
                           pod("z", "{openshift.io/a: 1, openshift.io/b: 2}")}),
            "Pod default/z asks for 2 of openshift.io/b; the other pods have left 1 on a node at "
            "most");
  // One is gone, and of the other one there is enough.
  EXPECT_EQ(said_of(both, {pod("x", "{openshift.io/b: 2}", "left"),
                           pod("y", "{openshift.io/b: 2}", "right"), pod("z", a_and_b)}),
            "Pod default/z finds no free openshift.io/b: the other pods have all 4");
}

// Two weak nodes: the left one has a device of `a`, the middle one of `b`. The right node has eight
// of each.
TEST(BrokenManifests, WhatIsSaidOfThePodsNodesIsNotSaidOfOthers) {
  const auto policy = [](const std::string& node, const std::string& resource, int count) {
    return changed(
        changed(changed(changed(changed(kPolicy,
                                        "feature.node.kubernetes.io/network-sriov.capable: "
                                        "\"true\"",
                                        "kubernetes.io/hostname: " + node),
                                "numVfs: 8", "numVfs: " + std::to_string(count)),
                        "name: ib", "name: " + node + "-" + resource),
                "mlnxnics", resource),
        kPfs, resource == "a" ? "[ibs1f0]" : "[ibs2f0]");
  };
  const auto pod = [](const std::string& name, const std::string& place,
                      const std::string& wanted) {
    return "apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + "}\nspec:\n  " + place +
           "\n  containers: [{name: c, image: d, resources: {limits: " + wanted + "}}]\n";
  };
  const auto node = [](const std::string& name, const std::string& strength) {
    return "apiVersion: v1\nkind: Node\nmetadata: {name: " + name +
           ", labels: {strength: " + strength + "}}\n";
  };
  const std::string policies = sections(
      {node("left", "weak"), node("middle", "weak"), node("right", "full"), policy("left", "a", 1),
       policy("middle", "b", 1), policy("right", "a", 8), policy("right", "b", 8)});
  const auto said_of = [&](const std::vector<std::string>& pods) {
    const PodPlan plan = make_plan({{"policy.yaml", policies}, {"pods.yaml", sections(pods)}}, {});
    EXPECT_FALSE(plan.findings.list().empty()) << plan_text(plan);
    return plan.findings.list().empty() ? ManifestFinding{} : plan.findings.list()[0];
  };
  const std::string left = "nodeName: left";
  const std::string two = "{openshift.io/a: 2}";
  EXPECT_EQ(said_of({pod("x", left, two)}).what,
            "Pod default/x asks for 2 of openshift.io/a; no node where it may be has "
            "more than 1");
  EXPECT_EQ(said_of({pod("x", left, two)}).remedy,
            "ask for less, or raise numVfs, or select other nodes");
  const std::string selector = "nodeSelector: {kubernetes.io/hostname: left}";
  EXPECT_THAT(said_of({pod("x", selector, two)}).what, HasSubstr("no node where it may be has"));
  const std::string daemons =
      "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: each}\n"
      "spec: {template: {spec: {containers: [{name: c, image: d, "
      "resources: {limits: " +
      two + "}}]}}}\n";
  EXPECT_THAT(said_of({daemons}).what, HasSubstr("no node where it may be has more than 1"));
  const ManifestFinding apart = said_of(
      {pod("x", "nodeSelector: {strength: weak}", "{openshift.io/a: 1, openshift.io/b: 1}")});
  EXPECT_THAT(apart.what, HasSubstr("no node where it may be has them together"));
  EXPECT_THAT(apart.remedy, HasSubstr("or select other nodes"));
  // What no node at all has.
  EXPECT_THAT(said_of({pod("x", "restartPolicy: Never", "{openshift.io/a: 9}")}).what,
              HasSubstr("no node has more than 8"));
  const std::string one = "{openshift.io/a: 1}";
  EXPECT_EQ(said_of({pod("x", left, one), pod("y", left, one)}).what,
            "Pod default/y finds no free openshift.io/a: the other pods have all 1 where it "
            "may be");
}

// Cut, and with lines left out or doubled: each file must give an answer, whichever it is, and none
// may end the program.
TEST(BrokenManifests, NothingThatIsNoManifestBreaksThePlan) {
  const std::string all = sections({kPolicy, kNetwork, kPod, kJob});
  for (std::size_t cut = 0; cut < all.size(); cut += 3) {
    (void)plan_json(make_plan({{"a.yaml", all.substr(0, cut)}}, {}));
    (void)plan_json(make_plan({{"a.yaml", all.substr(cut)}}, {}));
  }
  for (std::size_t at = 0; (at = all.find('\n', at)) != std::string::npos; ++at) {
    const std::size_t end = std::min(all.find('\n', at + 1), all.size());
    (void)plan_text(make_plan({{"a.yaml", all.substr(0, at) + all.substr(end)}}, {}));
    (void)plan_text(make_plan({{"a.yaml", all.substr(0, end) + all.substr(at)}}, {}));
  }
}

}  // namespace
}  // namespace weft::k8s
