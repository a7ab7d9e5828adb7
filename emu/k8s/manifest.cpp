// Owns reading files of manifests.
#include "emu/k8s/manifest.hpp"

#include <algorithm>
#include <functional>

namespace weft::k8s {
namespace {

// More is no manifest that a person wrote.
constexpr std::size_t kMaxObjects = 100'000;

// Objects without a namespace are applied to the one that kubectl is told, "default" otherwise.
void add_object(const ManifestFile& file, const YAML::Node& root, Findings& findings,
                std::vector<Manifest>& manifests) {
  const FilePlace place = place_of(file.name, root);
  if (!root.IsMap()) {
    findings.error(place, "is no object", "a manifest has keys: apiVersion, kind, metadata, ...");
    return;
  }
  const std::string kind = text_of(value_of(root, "kind"));
  if (kind.empty() || text_of(value_of(root, "apiVersion")).empty()) {
    findings.error(place,
                   kind.empty() ? "an object without 'kind'" : kind + " without 'apiVersion'",
                   "give both, as the API server refuses it otherwise");
    return;
  }
  if (kind.ends_with("List") && value_of(root, "items").IsSequence()) {
    for (const YAML::Node& item : value_of(root, "items")) {
      if (manifests.size() < kMaxObjects) {
        add_object(file, item, findings, manifests);
      }
    }
    return;
  }
  const YAML::Node metadata = value_of(root, "metadata");
  Manifest manifest{kind, text_of(value_of(metadata, "name")),
                    text_of(value_of(metadata, "namespace"), "default"), place, root};
  if (manifest.name.empty()) {
    manifest.name = text_of(value_of(metadata, "generateName"));
  }
  if (manifest.name.empty()) {
    findings.error(place, kind + " without 'metadata.name'", "give it a name");
    return;
  }
  manifests.push_back(std::move(manifest));
}

}  // namespace

bool Findings::has_errors() const {
  return std::ranges::any_of(list_,
                             [](const ManifestFinding& finding) { return finding.is_error; });
}

std::vector<Manifest> load_manifests(const ManifestFile& file, Findings& findings) {
  std::vector<Manifest> manifests;
  try {
    for (const YAML::Node& root : YAML::LoadAll(file.text)) {
      if (root.IsDefined() && !root.IsNull() && manifests.size() < kMaxObjects) {
        add_object(file, root, findings, manifests);
      }
    }
  } catch (const YAML::Exception& problem) {
    const int line = problem.mark.is_null() ? 0 : problem.mark.line + 1;
    findings.error({file.name, line}, "is not valid YAML: " + problem.msg,
                   "often an indentation, a tab, or a quote that is not closed");
  }
  return manifests;
}

FilePlace place_of(const std::string& file, const YAML::Node& node) {
  return {file, node.IsDefined() && !node.Mark().is_null() ? node.Mark().line + 1 : 0};
}

YAML::Node value_of(const YAML::Node& map, const char* key) {
  if (!map.IsDefined() || !map.IsMap()) {
    return YAML::Node(YAML::NodeType::Undefined);
  }
  const YAML::Node& constant = map;  // indexing a mutable node would insert the key
  return constant[key];
}

std::string text_of(const YAML::Node& node, const std::string& otherwise) {
  return node.IsDefined() && node.IsScalar() ? node.Scalar() : otherwise;
}

}  // namespace weft::k8s
