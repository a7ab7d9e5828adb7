// Owns reading files of manifests.
#include "emu/k8s/manifest.hpp"

#include <algorithm>
#include <functional>
#include <string_view>

namespace weft::k8s {
namespace {

// More is no manifest that a person wrote.
constexpr std::size_t kMaxObjects = 100'000;
constexpr std::size_t kMaxDocuments = 10'000;

bool is_separator(std::string_view line) {
  return (line.starts_with("---") || line.starts_with("...")) &&
         (line.size() == 3 || line[3] == ' ' || line[3] == '\t' || line[3] == '\r');
}

// The documents of a file, each with as many empty lines in front of it as there are lines before
// it in the file: so its marks are the file's. The parser's own loop over documents does not end
// where one of them is malformed, and ends at the first that is empty.
std::vector<std::string> documents_of(const std::string& text) {
  std::vector<std::string> documents;
  std::string document;
  std::size_t lines = 0;
  bool is_empty = true;
  const auto finish = [&] {
    if (!is_empty && documents.size() < kMaxDocuments) {
      documents.push_back(std::move(document));
    }
    document.assign(lines, '\n');
    is_empty = true;
  };
  for (std::size_t at = 0; at < text.size(); ++lines) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line(text.data() + at, end - at);
    if (is_separator(line)) {
      finish();
      document += line.starts_with("---") ? line : "";
      is_empty = line.find_first_not_of(" \t\r", 3) == std::string_view::npos;
    } else if (!is_empty || !line.starts_with('%')) {  // directives stand before a document
      document += line;
      is_empty = is_empty && line.find_first_not_of(" \t\r") == std::string_view::npos;
    }
    if (end != text.size()) {
      document += '\n';
    }
    at = end + 1;
  }
  finish();
  return documents;
}

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
    for (const std::string& document : documents_of(file.text)) {
      const YAML::Node root = YAML::Load(document);
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
