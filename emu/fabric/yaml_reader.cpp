// Owns units, places of errors, and the checking of keys in YAML.
#include "emu/fabric/yaml_reader.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <fstream>
#include <initializer_list>
#include <sstream>
#include <unordered_set>

#include "emu/fabric/nearest_word.hpp"

namespace weft::fabric {
namespace {

constexpr std::uintmax_t kMaxFile = 256U << 20;
constexpr std::size_t kMaxDepth = 300;  // of values within values
// Of a file, beside one for each character: aliases may stand for many.
constexpr std::size_t kMaxValues = 10'000'000;

struct Unit {
  std::string_view name;
  double factor;
};

// A number and one of the units (case as given); nothing else, not negative, finite.
std::optional<double> parse_with_unit(std::string_view text, std::initializer_list<Unit> units) {
  while (!text.empty() && text.back() == ' ') {
    text.remove_suffix(1);
  }
  double number = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (status != std::errc{} || !std::isfinite(number) || number < 0) {
    return std::nullopt;
  }
  std::string_view rest(end, static_cast<std::size_t>(text.data() + text.size() - end));
  while (!rest.empty() && rest.front() == ' ') {
    rest.remove_prefix(1);
  }
  for (const Unit& unit : units) {
    if (rest == unit.name) {
      return number * unit.factor;
    }
  }
  return std::nullopt;
}

// Where the values of a document have no end, or none within reason: by an alias that stands in
// what it is an alias of, or by aliases of aliases.
class EndFinder {
 public:
  explicit EndFinder(std::size_t most) : left_(most) {}

  // A value that goes too far, if there is one.
  std::optional<YAML::Node> find(const YAML::Node& node, std::size_t depth = 0) {
    if (left_ == 0 || depth > kMaxDepth) {
      return node;
    }
    --left_;
    std::optional<YAML::Node> found;
    if (node.IsMap()) {
      for (auto pair = node.begin(); !found && pair != node.end(); ++pair) {
        found = find(pair->first, depth + 1);
        found = found ? found : find(pair->second, depth + 1);
      }
    } else if (node.IsSequence()) {
      for (auto item = node.begin(); !found && item != node.end(); ++item) {
        found = find(*item, depth + 1);
      }
    }
    return found;
  }

 private:
  std::size_t left_;
};

// Levenshtein's, with one row: for "did you mean".
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) {
    row[j] = j;
  }
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0]++;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0U : 1U)});
      diagonal = above;
    }
  }
  return row[b.size()];
}

}  // namespace

// Units are those of networks: powers of ten, bits.
std::optional<Rate> parse_rate(std::string_view text) {
  const auto value = parse_with_unit(text, {{"", 1},
                                            {"bps", 1},
                                            {"b/s", 1},
                                            {"K", 1e3},
                                            {"Kbps", 1e3},
                                            {"Kb/s", 1e3},
                                            {"M", 1e6},
                                            {"Mbps", 1e6},
                                            {"Mb/s", 1e6},
                                            {"G", 1e9},
                                            {"Gbps", 1e9},
                                            {"Gb/s", 1e9},
                                            {"T", 1e12},
                                            {"Tbps", 1e12},
                                            {"Tb/s", 1e12}});
  if (!value || *value < 1000 || *value > 1e14) {
    return std::nullopt;
  }
  return Rate::bits_per_second(static_cast<std::uint64_t>(*value + 0.5));
}

std::optional<Duration> parse_duration(std::string_view text) {
  if (text == "0") {
    return Duration::zero();
  }
  const auto value = parse_with_unit(text, {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}});
  if (!value || *value > 1e15) {
    return std::nullopt;
  }
  return Duration{static_cast<std::int64_t>(std::llround(*value))};
}

std::optional<Bytes> parse_bytes(std::string_view text) {
  const auto value = parse_with_unit(text, {{"", 1},
                                            {"B", 1},
                                            {"KB", 1e3},
                                            {"kB", 1e3},
                                            {"MB", 1e6},
                                            {"GB", 1e9},
                                            {"TB", 1e12},
                                            {"KiB", 1024},
                                            {"MiB", 1048576},
                                            {"GiB", 1073741824}});
  if (!value || *value > 1e15) {
    return std::nullopt;
  }
  return static_cast<Bytes>(*value + 0.5);
}

std::string nearest_word(std::string_view word, std::span<const std::string> words) {
  std::string nearest;
  // A name with more than three differences is no misspelling, nor one that shares little with a
  // short word.
  std::size_t best = word.size() < 4 ? 2 : word.size() < 9 ? 3 : 4;
  for (const std::string& name : words) {
    if (const std::size_t distance = edit_distance(word, name); distance < best) {
      best = distance;
      nearest = name;
    }
  }
  return nearest;
}

YAML::Node YamlFile::load(const std::string& text) {
  try {
    const YAML::Node root = YAML::Load(text);
    if (const auto endless = EndFinder(kMaxValues + text.size()).find(root)) {
      fail_at(
          *endless, "",
          "has no end: look for an anchor (&NAME) whose alias (*NAME) is within it or repeated");
      return {};
    }
    return root;
  } catch (const YAML::Exception& problem) {
    const int line = problem.mark.is_null() ? 0 : problem.mark.line + 1;
    error_ = Error{ErrorCode::parse_error,
                   name_ + ":" + std::to_string(line) + ": not valid YAML: " + problem.msg};
    return {};
  }
}

void YamlFile::fail_at(const YAML::Node& node, const std::string& path, const std::string& what) {
  if (error_) {
    return;
  }
  std::string place = name_;
  if (node.IsDefined() && !node.Mark().is_null()) {
    place += ":" + std::to_string(node.Mark().line + 1);
  }
  error_ = Error{ErrorCode::parse_error, place + ": " + (path.empty() ? "" : path + ": ") + what};
}

void YamlFile::check_keys(const YAML::Node& map, const std::string& path) {
  if (failed() || !map.IsDefined() || !map.IsMap()) {
    return;
  }
  std::unordered_set<std::string_view> keys;
  for (const auto& pair : map) {
    if (pair.first.IsScalar() && !keys.insert(pair.first.Scalar()).second) {
      fail_at(pair.first, path, "'" + pair.first.Scalar() + "' is here a second time");
      return;
    }
  }
}

YamlMap::YamlMap(YamlFile& file, YAML::Node node, std::string path)
    : file_(file), node_(std::move(node)), path_(std::move(path)) {
  if (!file_.failed() && node_.IsDefined() && !node_.IsNull() && !node_.IsMap()) {
    file_.fail_at(node_, path_, "expected keys and values (\"key: value\")");
  }
  file_.check_keys(node_, path_);
}

std::string YamlMap::key_path(const char* key) const {
  return path_.empty() ? key : path_ + "." + key;
}

YAML::Node YamlMap::get(const char* key) {
  asked_.emplace_back(key);
  if (file_.failed() || !node_.IsDefined() || !node_.IsMap()) {
    return YAML::Node(YAML::NodeType::Undefined);
  }
  // Indexing a mutable node would insert the key.
  const YAML::Node& constant = node_;
  return constant[key];
}

YAML::Node YamlMap::raw(const char* key) { return get(key); }

bool YamlMap::has(const char* key) {
  const YAML::Node node = get(key);
  return node.IsDefined() && !node.IsNull();
}

void YamlMap::fail(const char* key, const std::string& what) {
  const YAML::Node node = get(key);
  file_.fail_at(node.IsDefined() ? node : node_, key_path(key), what);
}

std::optional<std::string> YamlMap::scalar(const char* key, const char* expected) {
  const YAML::Node node = get(key);
  if (!node.IsDefined() || node.IsNull()) {
    return std::nullopt;
  }
  if (!node.IsScalar()) {
    file_.fail_at(node, key_path(key), std::string("expected ") + expected);
    return std::nullopt;
  }
  return node.Scalar();
}

void YamlMap::read(const char* key, bool& out) {
  if (const auto text = scalar(key, "true or false")) {
    if (*text == "true" || *text == "on" || *text == "yes") {
      out = true;
    } else if (*text == "false" || *text == "off" || *text == "no") {
      out = false;
    } else {
      fail(key, "expected true or false, found '" + *text + "'");
    }
  }
}

void YamlMap::read(const char* key, std::string& out) {
  if (auto text = scalar(key, "a text")) {
    out = std::move(*text);
  }
}

void YamlMap::read_label(const char* key, std::string& out) {
  constexpr std::size_t kMaxLength = 200;
  std::string text = out;
  read(key, text);
  const bool is_line = std::none_of(text.begin(), text.end(), [](char c) {
    return static_cast<unsigned char>(c) < 0x20 || c == 0x7F;
  });
  if (!is_line || text.size() > kMaxLength) {
    fail(key, "expected one line of at most " + std::to_string(kMaxLength) + " characters");
    return;
  }
  out = std::move(text);
}

bool is_node_name(std::string_view text) {
  constexpr std::size_t kMaxLength = 63;
  return !text.empty() && text.size() <= kMaxLength && text.front() != '.' && text.front() != '-' &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '.' || c == '_' || c == '-';
         });
}

void YamlMap::read(const char* key, Rate& out) {
  if (const auto text = scalar(key, "a rate such as 100Gbps")) {
    if (const auto rate = parse_rate(*text)) {
      out = *rate;
    } else {
      fail(key,
           "expected a positive rate such as 100Gbps or 25G (a number without a unit is bits "
           "per second, of which 1000 are the least), found '" +
               *text + "'");
    }
  }
}

void YamlMap::read(const char* key, Duration& out) {
  if (const auto text = scalar(key, "a time such as 1us")) {
    if (const auto duration = parse_duration(*text)) {
      out = *duration;
    } else {
      fail(key, "expected a time with its unit such as 500ns, 1us or 2ms, not negative, found '" +
                    *text + "'");
    }
  }
}

void YamlMap::read_bytes(const char* key, Bytes& out) {
  if (const auto text = scalar(key, "a size such as 2MB")) {
    if (const auto bytes = parse_bytes(*text)) {
      out = *bytes;
    } else {
      fail(key, "expected a size such as 4150, 64KiB or 2MB, not negative, found '" + *text + "'");
    }
  }
}

void YamlMap::read(const char* key, double& out, double low, double high) {
  if (const auto text = scalar(key, "a number")) {
    double value = 0;
    const auto [end, status] = std::from_chars(text->data(), text->data() + text->size(), value);
    std::ostringstream range;
    range << "expected a number from " << low << " to " << high << ", found '" << *text << "'";
    if (status != std::errc{} || end != text->data() + text->size() ||
        !(value >= low && value <= high)) {
      fail(key, range.str());
    } else {
      out = value;
    }
  }
}

bool YamlMap::integer(const char* key, std::int64_t& value, std::int64_t low, std::int64_t high) {
  const auto text = scalar(key, "a whole number");
  if (!text) {
    return false;
  }
  std::int64_t parsed = 0;
  const auto [end, status] = std::from_chars(text->data(), text->data() + text->size(), parsed);
  if (status != std::errc{} || end != text->data() + text->size() || parsed < low ||
      parsed > high) {
    fail(key, "expected a whole number from " + std::to_string(low) + " to " +
                  std::to_string(high) + ", found '" + *text + "'");
    return false;
  }
  value = parsed;
  return true;
}

std::size_t YamlMap::choice(const char* key, std::span<const char* const> words,
                            std::size_t otherwise) {
  const auto text = scalar(key, "a word");
  if (!text) {
    return otherwise;
  }
  std::string list;
  std::size_t index = 0;
  for (const char* word : words) {
    if (*text == word) {
      return index;
    }
    list += (index++ == 0 ? "" : ", ") + std::string(word);
  }
  fail(key, "expected one of " + list + "; found '" + *text + "'");
  return otherwise;
}

void YamlMap::each(const char* key,
                   const std::function<void(YAML::Node, const std::string&)>& visit) {
  const YAML::Node node = get(key);
  if (!node.IsDefined() || node.IsNull()) {
    return;
  }
  if (!node.IsSequence()) {
    file_.fail_at(node, key_path(key), "expected a list (\"- item\")");
    return;
  }
  std::size_t index = 0;
  for (const YAML::Node& item : node) {
    if (file_.failed()) {
      return;
    }
    visit(item, key_path(key) + "[" + std::to_string(index++) + "]");
  }
}

void YamlMap::each_pair(
    const char* key,
    const std::function<void(const std::string&, YAML::Node, const std::string&)>& visit) {
  const YAML::Node node = get(key);
  if (!node.IsDefined() || node.IsNull()) {
    return;
  }
  if (!node.IsMap()) {
    file_.fail_at(node, key_path(key), "expected names and their values (\"name: ...\")");
    return;
  }
  file_.check_keys(node, key_path(key));
  for (const auto& pair : node) {
    if (file_.failed()) {
      return;
    }
    if (!pair.first.IsScalar()) {
      file_.fail_at(pair.first, key_path(key), "a name must be a plain word");
      return;
    }
    visit(pair.first.Scalar(), pair.second, key_path(key) + "." + pair.first.Scalar());
  }
}

YamlMap YamlMap::map(const char* key) {
  const YAML::Node node = get(key);
  return YamlMap(file_, node.IsDefined() ? node : YAML::Node(YAML::NodeType::Null), key_path(key));
}

// The first unknown key becomes the error: with the nearest known name, or all of them.
void YamlMap::finish() {
  if (file_.failed() || !node_.IsDefined() || !node_.IsMap()) {
    return;
  }
  for (const auto& pair : node_) {
    const std::string key = pair.first.IsScalar() ? pair.first.Scalar() : "?";
    if (std::find(asked_.begin(), asked_.end(), key) != asked_.end()) {
      continue;
    }
    std::string all;
    std::vector<std::string> names = asked_;
    std::sort(names.begin(), names.end());
    names.erase(std::unique(names.begin(), names.end()), names.end());
    for (const std::string& name : names) {
      all += (all.empty() ? "" : ", ") + name;
    }
    const std::string nearest = nearest_word(key, names);
    file_.fail_at(
        pair.first, path_,
        "unknown key '" + key + "'" +
            (nearest.empty() ? "; known here: " + all : "; did you mean '" + nearest + "'?"));
    return;
  }
}

Result<std::string> read_text_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::string content;
  std::vector<char> part(std::size_t{1} << 16);
  // A device or a pipe may have no end.
  while (in && content.size() <= kMaxFile) {
    in.read(part.data(), static_cast<std::streamsize>(part.size()));
    content.append(part.data(), static_cast<std::size_t>(in.gcount()));
  }
  if (in.bad() || !in.is_open()) {
    return fail(ErrorCode::io_error, path + ": cannot be read; check the name and the permissions");
  }
  if (content.size() > kMaxFile) {
    return fail(ErrorCode::invalid_argument, path + ": larger than 256 MiB");
  }
  return content;
}

}  // namespace weft::fabric
