// Owns which names and counts are read, as the API server reads them, and what is said of others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "emu/k8s/plan.hpp"
#include "tests/unit/emu/k8s/manifests.hpp"

namespace weft::k8s {
namespace {

using ::testing::HasSubstr;

// Nobody knows what they need: they are neither placed nor complained of for what follows from it.
TEST(BrokenManifests, PodsWhoseRequestsCannotBeReadDoNotStart) {
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

// As the API server reads them, whose quantities have units.
TEST(BrokenManifests, CountsOfDevicesAreQuantities) {
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

}  // namespace
}  // namespace weft::k8s
