// Owns that the manifests which we ship can be read, and that their samples get what they ask for.
// The tests run in the project's folder.
#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "emu/fabric/yaml_reader.hpp"
#include "emu/k8s/plan.hpp"

namespace weft::k8s {
namespace {

namespace fs = std::filesystem;

const fs::path kFolder = "containers/kubernetes";

ManifestFile read(const fs::path& path) {
  const auto text = fabric::read_text_file(path);
  EXPECT_TRUE(text) << text.error().message;
  return {path.string(), text.value_or("")};
}

TEST(ShippedManifests, AreObjectsAndLeadOnlyToFilesThatAreThere) {
  std::set<fs::path> named;
  std::set<fs::path> there;
  for (const auto& entry : fs::recursive_directory_iterator(kFolder)) {
    const fs::path& path = entry.path();
    if (path.extension() != ".yaml") {
      continue;
    }
    if (path.filename() != "kustomization.yaml") {
      Findings findings;
      EXPECT_FALSE(load_manifests(read(path), findings).empty()) << path;
      for (const ManifestFinding& finding : findings.list()) {
        ADD_FAILURE() << finding.place.text() << ": " << finding.what;
      }
      if (path.parent_path() != kFolder / "samples") {
        there.insert(path.lexically_normal());
      }
      continue;
    }
    const YAML::Node root = YAML::Load(read(path).text);
    EXPECT_EQ(text_of(value_of(root, "kind")), "Kustomization") << path;
    for (const YAML::Node& resource : value_of(root, "resources")) {
      const fs::path to = path.parent_path() / text_of(resource);
      EXPECT_TRUE(fs::exists(to)) << to;
      named.insert(to.lexically_normal());
    }
    if (const YAML::Node patches = value_of(root, "patches"); patches.IsDefined()) {
      for (const YAML::Node& patch : patches) {
        named.insert((path.parent_path() / text_of(value_of(patch, "path"))).lexically_normal());
      }
    }
  }
  for (const fs::path& path : there) {
    EXPECT_TRUE(named.contains(path)) << path << " is part of no kustomization";
  }
}

TEST(ShippedManifests, SamplesGetWhatTheyAskFor) {
  PlanOptions options;
  // The device plugin's, which in a cluster says so itself.
  options.cluster.resources["vpc.amazonaws.com/efa"] = 4;
  for (const auto& entry : fs::directory_iterator(kFolder / "samples")) {
    const PodPlan plan = make_plan({read(entry.path())}, options);
    EXPECT_TRUE(plan.is_good()) << plan_text(plan);
    EXPECT_FALSE(plan.pods.empty()) << entry.path();
  }
}

}  // namespace
}  // namespace weft::k8s
