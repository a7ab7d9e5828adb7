// Owns reading YAML that people write: every error names its place (file, line, key), and every key
// must be known.
#pragma once

#include <yaml-cpp/yaml.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "srd/base/result.hpp"
#include "srd/base/units.hpp"

namespace weft::fabric {

// "100Gbps", "2.5 Gb/s", "400G"; plain numbers are bits per second.
[[nodiscard]] std::optional<Rate> parse_rate(std::string_view text);
// "1us", "250 ns", "3ms", "2s"; a number without unit is refused, except 0.
[[nodiscard]] std::optional<Duration> parse_duration(std::string_view text);
// "4150", "2MB", "64KiB", "100 KB".
[[nodiscard]] std::optional<Bytes> parse_bytes(std::string_view text);

// One file and its first error; later errors are usually consequences of the first. Functions of
// YamlMap report errors here and go on, so a reader checks once, at its end.
class YamlFile {
 public:
  explicit YamlFile(std::string file_name) : name_(std::move(file_name)) {}
  // Parses; on failure the file is failed() and the node is null.
  [[nodiscard]] YAML::Node load(const std::string& text);
  void fail_at(const YAML::Node& node, const std::string& path, const std::string& what);
  // Fails where a key of the mapping is given twice: the parser keeps both, and finds the first.
  void check_keys(const YAML::Node& map, const std::string& path);
  [[nodiscard]] bool failed() const { return error_.has_value(); }
  [[nodiscard]] Error error() const { return error_.value_or(Error{}); }
  [[nodiscard]] const std::string& name() const { return name_; }

 private:
  std::string name_;
  std::optional<Error> error_;
};

// A mapping whose keys are asked for by name. After the first failure of the file everything is a
// no-op.
class YamlMap {
 public:
  YamlMap(YamlFile& file, YAML::Node node, std::string path);

  // Asking for a key makes it known to finish(), whether it is there or not. read() leaves `out` as
  // it is where the key is absent or wrong.
  [[nodiscard]] bool has(const char* key);
  void read(const char* key, bool& out);
  void read(const char* key, std::string& out);
  // A text for tables, reports and metrics: one line, not too long.
  void read_label(const char* key, std::string& out);
  void read(const char* key, Rate& out);
  void read(const char* key, Duration& out);
  void read(const char* key, double& out, double low, double high);
  void read_bytes(const char* key, Bytes& out);
  // Any integer type, with the range that makes sense for it.
  template <class Int>
  void read(const char* key, Int& out, std::int64_t low, std::int64_t high) {
    std::int64_t value = static_cast<std::int64_t>(out);
    if (integer(key, value, low, high)) {
      out = static_cast<Int>(value);
    }
  }
  // One of a list of words; returns its index, or `otherwise` when the key is absent.
  [[nodiscard]] std::size_t choice(const char* key, std::span<const char* const> words,
                                   std::size_t otherwise);
  void each(const char* key, const std::function<void(YAML::Node, const std::string& path)>& visit);
  void each_pair(const char* key, const std::function<void(const std::string& name, YAML::Node,
                                                           const std::string& path)>& visit);
  // A mapping in this mapping; an empty one if the key is absent.
  [[nodiscard]] YamlMap map(const char* key);
  [[nodiscard]] YAML::Node raw(const char* key);

  // Fails for every key of the file that no reader has asked for, and names the nearest known one.
  void finish();
  void fail(const char* key, const std::string& what);
  void fail_here(const std::string& what) { file_.fail_at(node_, path_, what); }
  [[nodiscard]] YamlFile& file() { return file_; }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  [[nodiscard]] bool integer(const char* key, std::int64_t& value, std::int64_t low,
                             std::int64_t high);
  [[nodiscard]] YAML::Node get(const char* key);
  [[nodiscard]] std::optional<std::string> scalar(const char* key, const char* expected);
  [[nodiscard]] std::string key_path(const char* key) const;

  YamlFile& file_;
  YAML::Node node_;
  std::string path_;
  std::vector<std::string> asked_;
};

// Whether a node may have this name: names become parts of file paths, of environment variables, of
// link patterns and of metrics.
[[nodiscard]] bool is_node_name(std::string_view text);
inline constexpr const char* kNodeNameRule =
    "expected 1 to 63 letters, digits and ._- that begin with neither . nor -";

// The whole of a file, or an error that names it.
[[nodiscard]] Result<std::string> read_text_file(const std::string& path);

}  // namespace weft::fabric
