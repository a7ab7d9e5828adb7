// Owns Kubernetes manifests as documents with a place, and what is found wrong with them.
#pragma once

#include <yaml-cpp/yaml.h>

#include <charconv>
#include <concepts>
#include <optional>
#include <string>
#include <vector>

namespace weft::k8s {

// Where something stands in the files that people gave.
struct FilePlace {
  std::string file;
  int line = 0;

  [[nodiscard]] std::string text() const { return file + ":" + std::to_string(line); }
};

// What stands between the files and what they are meant to do. A finding is an error if somebody
// does not get what the files ask for.
struct ManifestFinding {
  FilePlace place;
  bool is_error = true;
  std::string what;
  std::string remedy;
};

// All findings of a plan, in the order in which they were made.
class Findings {
 public:
  void error(FilePlace place, std::string what, std::string remedy) {
    list_.push_back({std::move(place), true, std::move(what), std::move(remedy)});
  }
  void warning(FilePlace place, std::string what, std::string remedy) {
    list_.push_back({std::move(place), false, std::move(what), std::move(remedy)});
  }
  void append(const Findings& more) {
    list_.insert(list_.end(), more.list_.begin(), more.list_.end());
  }
  [[nodiscard]] const std::vector<ManifestFinding>& list() const { return list_; }
  [[nodiscard]] bool has_errors() const;

 private:
  std::vector<ManifestFinding> list_;
};

struct ManifestFile {
  std::string name;
  std::string text;
};

// One object of a file. `place` is its first line. Nodes are references into a shared document:
// reading must not change them.
struct Manifest {
  std::string kind;
  std::string name;
  std::string name_space;
  FilePlace place;
  int lines_before = 0;  // its document, in the file: its nodes know their line in the document
  YAML::Node root;

  // "Pod default/a", for messages.
  [[nodiscard]] std::string title() const { return kind + " " + name_space + "/" + name; }
};

// The objects of a file in their order; those of a List, too. What cannot be read is a finding.
[[nodiscard]] std::vector<Manifest> load_manifests(const ManifestFile& file, Findings& findings);

// --- Reading nodes that may be anything.

[[nodiscard]] FilePlace place_of(const Manifest& manifest, const YAML::Node& node);
// The value of a key, or an undefined node where there is none or `map` is no mapping.
[[nodiscard]] YAML::Node value_of(const YAML::Node& map, const char* key);
// A scalar's text, or `otherwise`.
[[nodiscard]] std::string text_of(const YAML::Node& node, const std::string& otherwise = "");
// A number in decimal digits alone: without a sign, a point or a unit. None if the text is anything
// else, or says more than `Number` holds.
template <std::unsigned_integral Number>
[[nodiscard]] std::optional<Number> whole_number(const std::string& text) {
  Number number = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  return status == std::errc{} && end == text.data() + text.size() ? std::optional(number)
                                                                   : std::nullopt;
}

}  // namespace weft::k8s
