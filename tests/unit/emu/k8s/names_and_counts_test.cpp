// Owns which names and counts are read, as the API server reads them, and what is said of others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>

#include "emu/k8s/plan.hpp"
#include "tests/unit/emu/k8s/manifests.hpp"

namespace weft::k8s {
namespace {

using ::testing::HasSubstr;

// Nobody knows what they need: they are neither placed nor complained of for what follows from it.
TEST(NamesAndCounts, PodsWhoseRequestsCannotBeReadDoNotStart) {
  for (const char* count : {"500m",
                            "-1",
                            "x",
                            "''",
                            "[1]",
                            "1.5",
                            "0x1",
                            "1.1.1",
                            "1n",
                            "1e",
                            "1e+-3",
                            "1e-1",
                            "+",
                            ".",
                            "1Kii",
                            "18446744073709551616",
                            "16Ei",
                            "1e99999999999",
                            "1e2147483647",
                            "1e-4294967295"}) {
    SCOPED_TRACE(count);
    const std::string wanted =
        changed(changed(kPod, "requests: {openshift.io/mlnxnics: 1}\n        ", ""), "mlnxnics: 1",
                "mlnxnics: " + std::string(count));
    for (const std::string& pod :
         {wanted, changed(wanted, "k8s.v1.cni.cncf.io/networks: ib-net", "unused: a")}) {
      const PodPlan plan = plan_of(kPolicy, kNetwork, pod);
      ASSERT_EQ(plan.findings.list().size(), 1U) << plan_text(plan);
      EXPECT_THAT(plan.findings.list()[0].what, HasSubstr("of openshift.io/mlnxnics"));
      EXPECT_EQ(plan.findings.list()[0].remedy, "a whole number from 0 to 18446744073709551615");
      EXPECT_THAT(plan_text(plan), HasSubstr("pod default/test-1: does not start"));
      EXPECT_THAT(plan_text(plan), HasSubstr("0 of 1 pods start"));
    }
  }
  const std::string resources =
      "resources:\n        requests: {openshift.io/mlnxnics: 1}\n        limits: "
      "{openshift.io/mlnxnics: 1}\n";
  for (const char* none :
       {"resources: 1\n", "resources: [limits]\n", "resources: {limits: 1}\n",
        "resources: {limits: [openshift.io/mlnxnics]}\n", "resources: {requests: a}\n"}) {
    const PodPlan plan = plan_of(kPolicy, kNetwork, changed(kPod, resources, none));
    ASSERT_EQ(plan.findings.list().size(), 1U) << plan_text(plan);
    EXPECT_THAT(plan.findings.list()[0].what, HasSubstr("that are no names with a number each"));
    EXPECT_EQ(plan.findings.list()[0].place.text(), "pods.yaml:12");
    EXPECT_EQ(plan.pods[0].node, "");
  }
  // An init container's, and one that is read beside one that is not.
  const PodPlan plan = plan_of(
      kPolicy, kNetwork,
      changed(kPod, "  containers:\n",
              "  initContainers: [{name: b, image: c, resources: {limits: {a/b: 1, c/d: x}}}]\n"
              "  containers:\n"));
  EXPECT_EQ(plan.pods[0].node, "");
}

// Quantities have units, as the API server reads them.
TEST(NamesAndCounts, CountsOfDevicesAreQuantities) {
  for (const char* one : {"1", "\"1\"", "+1", "01", "1.", "1.000", "1000m", "1e0", "1E+0", "10e-1",
                          "0.001k", "1000000000n", "0.0009765625Ki"}) {
    const PodPlan plan = plan_of(kPolicy, kNetwork,
                                 changed(kPod, "limits: {openshift.io/mlnxnics: 1",
                                         "limits: {openshift.io/mlnxnics: " + std::string(one)));
    EXPECT_TRUE(plan.is_good()) << one << "\n" << plan_text(plan);
  }
  EXPECT_EQ(count_of_quantity("2k"), 2000U);
  EXPECT_EQ(count_of_quantity("1.5Ki"), 1536U);
  EXPECT_EQ(count_of_quantity("0e4294967295"), 0U);
  EXPECT_EQ(count_of_quantity("18446744073709551615"), 18446744073709551615U);
  EXPECT_EQ(count_of_quantity("15Ei"), std::uint64_t{15} << 60);
  const PodPlan plan = plan_of(
      kPolicy, kNetwork,
      changed(kPod, "limits: {openshift.io/mlnxnics: 1", "limits: {openshift.io/mlnxnics: 1k"));
  EXPECT_THAT(plan_text(plan), HasSubstr("asks for 1000 of openshift.io/mlnxnics"));
}

// As kubectl apply finds them (RFC 1123).
TEST(NamesAndCounts, NamesAreThoseThatTheApiServerTakes) {
  for (const char* name : {"a", "0", "a-b", "a--b", "a.b", "0.a-1.b"}) {
    const PodPlan plan = plan_of(kPolicy, kNetwork, changed(kPod, "test-1", name));
    EXPECT_TRUE(plan.is_good()) << plan_text(plan);
  }
  for (const char* name : {"a-", "-a", "a.", ".a", "a..b", "a-.b", "a.-b", "A", "a_b", "-"}) {
    const PodPlan plan =
        plan_of(kPolicy, kNetwork, changed(kPod, "test-1", "'" + std::string(name) + "'"));
    ASSERT_EQ(plan.findings.list().size(), 1U) << name << "\n" << plan_text(plan);
    EXPECT_EQ(plan.findings.list()[0].what, "Pod with the name '" + std::string(name) + "'");
    EXPECT_EQ(plan.findings.list()[0].place.text(), "pods.yaml:4");
  }
  // The API server puts letters behind it.
  const std::string generated = changed(kPod, "name: test-1", "generateName: test-");
  EXPECT_TRUE(plan_of(kPolicy, kNetwork, generated).is_good());
}

std::string object_of(const std::string& kind, const std::string& metadata) {
  const std::string pod = "spec: {containers: [{name: a, image: b}]}";
  const std::string made = "spec: {template: {" + pod + "}}";
  const std::string spec = kind == "Pod"       ? pod
                           : kind == "CronJob" ? "spec: {jobTemplate: {" + made + "}}"
                           : kind == "Service" ? "spec: {selector: {a: b}}"
                                               : made;
  return "apiVersion: v1\nkind: " + kind + "\nmetadata: {" + metadata + "}\n" + spec + "\n";
}

// Something is made of them that is shorter or of fewer characters than a domain.
TEST(NamesAndCounts, SomeKindsOfObjectsHaveNarrowerNames) {
  const auto said = [](const std::string& kind, const std::string& metadata) {
    const PodPlan plan = make_plan({{"a.yaml", object_of(kind, metadata)}}, {});
    EXPECT_LE(plan.findings.list().size(), 1U) << plan_text(plan);
    return plan.findings.list().empty() ? ManifestFinding{} : plan.findings.list()[0];
  };
  const auto name = [](std::size_t size) { return "name: " + std::string(size, 'a'); };
  const std::pair<const char*, std::size_t> longest[] = {{"Pod", 253},        {"Deployment", 253},
                                                         {"StatefulSet", 63}, {"Job", 63},
                                                         {"CronJob", 52},     {"Service", 63}};
  for (const auto& [kind, size] : longest) {
    EXPECT_EQ(said(kind, name(size)).what, "");
    const ManifestFinding finding = said(kind, name(size + 1));
    EXPECT_THAT(finding.what, HasSubstr(std::string(kind) + " with the name 'aaa"));
    EXPECT_THAT(finding.remedy, HasSubstr("at most " + std::to_string(size) + " small letters"));
    const bool is_service = std::string(kind) == "Service";
    const bool has_dots = !is_service && std::string(kind) != "StatefulSet";
    EXPECT_EQ(said(kind, "name: a.b").what.empty(), has_dots) << kind;
    EXPECT_EQ(said(kind, "name: 1a").what.empty(), !is_service) << kind;
    // All namespaces are alike.
    EXPECT_EQ(said(kind, "name: a, namespace: 1-" + std::string(61, 'a')).what, "");
    for (const std::string& wrong : {std::string(64, 'a'), std::string("a.b"), std::string("-a")}) {
      EXPECT_EQ(said(kind, "name: a, namespace: " + wrong).what,
                std::string(kind) + " with the namespace '" + wrong + "'");
    }
  }
  // For kubectl as if it were not there.
  EXPECT_EQ(said("Pod", "name: a, namespace: ''").what, "");
  EXPECT_EQ(said("Service", "name: a-").remedy,
            "at most 63 small letters, digits and -, which is at no end, with a letter at the "
            "beginning: the API server refuses it otherwise");
}

// The pods of an indexed Job are hosts whose names have their numbers behind the Job's.
TEST(NamesAndCounts, NamesOfIndexedJobsLeaveRoomForTheNumbersOfTheirPods) {
  const auto said = [](const std::string& name, const std::string& completions) {
    const std::string job =
        "apiVersion: batch/v1\nkind: Job\nmetadata: {name: " + name +
        "}\nspec: {completionMode: Indexed, completions: " + completions +
        ", parallelism: 1, template: {spec: {containers: [{name: a, image: b}]}}}\n";
    const PodPlan plan = make_plan({{"a.yaml", job}}, {});
    EXPECT_LE(plan.findings.list().size(), 1U) << plan_text(plan);
    return plan.findings.list().empty() ? "" : plan.findings.list()[0].remedy;
  };
  const auto name = [](std::size_t size) { return std::string(size, 'a'); };
  EXPECT_EQ(said(name(61), "10"), "");
  EXPECT_THAT(said(name(62), "10"), HasSubstr("at most 61 small letters"));
  EXPECT_EQ(said(name(60), "11"), "");
  EXPECT_THAT(said(name(61), "11"), HasSubstr("at most 60 small letters"));
  EXPECT_THAT(said("a.b", "2"), HasSubstr("digits and -"));
}

// What the API server makes of it is another name each time.
TEST(NamesAndCounts, GeneratedNamesAreNobodysNames) {
  const std::string generated = object_of("Pod", "generateName: test");
  const std::string named = object_of("Pod", "name: test");
  for (const std::string& text : {generated + "---\n" + named, named + "---\n" + generated,
                                  generated + "---\n" + generated}) {
    const PodPlan plan = make_plan({{"a.yaml", text}}, {});
    EXPECT_TRUE(plan.is_good()) << plan_text(plan);
  }
  const PodPlan twice = make_plan({{"a.yaml", named + "---\n" + named}}, {});
  EXPECT_FALSE(twice.is_good());
}

// The API server checks a generateName as the beginning of a name, then cuts it to 58 characters
// and adds five of its own: what counts the whole name counts 63 at most.
TEST(NamesAndCounts, GeneratedNamesAreCutBeforeTheyAreCompleted) {
  const auto said = [](const std::string& kind, const std::string& metadata) {
    const PodPlan plan = make_plan({{"a.yaml", object_of(kind, metadata)}}, {});
    EXPECT_LE(plan.findings.list().size(), 1U) << plan_text(plan);
    return plan.findings.list().empty() ? ManifestFinding{} : plan.findings.list()[0];
  };
  const auto beginning = [](std::size_t size, const std::string& end = "") {
    return "generateName: " + std::string(size, 'a') + end;
  };
  EXPECT_EQ(said("Job", beginning(79)).what, "");
  const std::pair<const char*, std::size_t> longest[] = {{"Pod", 253},        {"Deployment", 253},
                                                         {"StatefulSet", 63}, {"Job", 253},
                                                         {"CronJob", 47},     {"Service", 63}};
  for (const auto& [kind, size] : longest) {
    EXPECT_EQ(said(kind, beginning(size)).what, "");
    EXPECT_EQ(said(kind, beginning(size - 1, "-")).what, "");
    const ManifestFinding finding = said(kind, beginning(size + 1));
    EXPECT_THAT(finding.what, HasSubstr(std::string(kind) + " with the generateName 'aaa"));
    EXPECT_THAT(finding.remedy, HasSubstr("at most " + std::to_string(size) + " small letters"));
    const bool has_dots = std::string(kind) != "Service" && std::string(kind) != "StatefulSet";
    EXPECT_EQ(said(kind, "generateName: a.b-").what.empty(), has_dots);
    EXPECT_EQ(said(kind, "generateName: a--").what, "");
    for (const std::string wrong : {"-", "--", "-a", "a.", ".", "a.-", "a..b", "A-", "a_"}) {
      EXPECT_EQ(said(kind, "generateName: '" + wrong + "'").what,
                std::string(kind) + " with the generateName '" + wrong + "'");
    }
    // A name makes none of it, but it is looked at all the same.
    EXPECT_EQ(said(kind, "name: b, generateName: a-").what, "");
    EXPECT_THAT(said(kind, "name: b, " + beginning(300)).what, HasSubstr("generateName 'aaa"));
  }
  // A dash at the end is taken for a letter together with what is before it.
  EXPECT_EQ(said("Pod", beginning(253, "-")).what, "");
  EXPECT_NE(said("Pod", beginning(254, "-")).what, "");
  EXPECT_EQ(said("CronJob", "name: b, " + beginning(253)).what, "");
  EXPECT_EQ(said("Service", "generateName: a.").remedy,
            "at most 63 small letters, digits and -, which is at no end, with a letter at the "
            "beginning (but - may be the last): the API server refuses it otherwise");
  // What is beyond is in no pod's name either.
  EXPECT_EQ(make_plan({{"a.yaml", object_of("Job", beginning(79))}}, {}).pods.at(0).pod->name,
            std::string(58, 'a') + "-0");
}

TEST(NamesAndCounts, PartsOfPodsHaveNamesWithoutDots) {
  for (const char* name : {"a.b", "A", "-a", "''"}) {
    for (const char* part : {"containers: [{image: b, name: ", "volumes: [{emptyDir: {}, name: ",
                             "initContainers: [{image: b, name: "}) {
      const std::string others = part[0] == 'c' ? "" : ", containers: [{name: fine, image: b}]";
      const PodPlan plan =
          make_plan({{"a.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: {" +
                                    std::string(part) + name + "}]" + others + "}\n"}},
                    {});
      ASSERT_EQ(plan.findings.list().size(), 1U) << part << name << "\n" << plan_text(plan);
      EXPECT_THAT(plan.findings.list()[0].what, HasSubstr(part[0] == 'v' ? "volume" : "container"));
      EXPECT_EQ(plan.findings.list()[0].place.text(), "a.yaml:4");
    }
  }
}

}  // namespace
}  // namespace weft::k8s
