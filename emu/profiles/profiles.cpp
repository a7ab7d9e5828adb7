// Owns reading profiles.
#include "emu/profiles/profiles.hpp"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <weft/builtin_profiles.hpp>

namespace weft::emu {
namespace {

std::string list_of(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) {
    text += (text.empty() ? "" : ", ") + name;
  }
  return text;
}

// Numbers may be written in hexadecimal.
std::string plain_value(const std::string& value) {
  std::uint64_t number = 0;
  const char* const end = value.data() + value.size();
  const bool hexadecimal = value.starts_with("0x") && value.size() > 2;
  if (!hexadecimal || std::from_chars(value.data() + 2, end, number, 16).ptr != end) {
    return value;
  }
  return std::to_string(number);
}

tl::unexpected<Error> bad_field(const std::string& where, const std::string& name,
                                const std::string& what) {
  return fail(ErrorCode::parse_error, where + ": field " + name + " " + what);
}

Result<std::string> to_description(const YAML::Node& root, const std::string& origin) {
  const YAML::Node fields = root["fields"];
  if (!root["profile"] || !fields || !fields.IsMap()) {
    return fail(ErrorCode::parse_error, origin + ": needs `profile: NAME` and a map `fields:`");
  }
  std::string text = "profile " + root["profile"].as<std::string>() + "\n";
  std::vector<std::string> missing = kernel::profile_fields();
  const std::vector<std::string> known = missing;
  for (const auto& field : fields) {
    const auto name = field.first.as<std::string>();
    const std::string where = origin + ":" + std::to_string(field.first.Mark().line + 1);
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      return bad_field(where, name, "is none of a profile's: " + list_of(known));
    }
    if (std::erase(missing, name) == 0) {
      return bad_field(where, name, "is there twice");
    }
    const bool is_map = field.second.IsMap();
    const auto mark = is_map ? field.second["mark"].as<std::string>("") : "";
    if (!is_map || !field.second["value"] || (mark != "fact" && mark != "assumption")) {
      return bad_field(where, name, "needs `value:` and `mark: fact` or `mark: assumption`");
    }
    const auto value = field.second["value"].as<std::string>();
    const std::string line = name + " " + plain_value(value) + "\n";
    if (!kernel::nic_from_text(line)) {
      return bad_field(where, name,
                       "is \"" + value +
                           "\"; allowed are numbers of up to 32 bits, or true and "
                           "false for abilities");
    }
    text += line;
  }
  if (!missing.empty()) {
    return fail(ErrorCode::parse_error, origin + ": these fields are missing: " + list_of(missing) +
                                            "; every profile says all of them, each with its mark");
  }
  return text;
}

}  // namespace

std::vector<std::string> profile_names() {
  std::vector<std::string> names;
  for (const BuiltinProfile& profile : kBuiltinProfiles) {
    names.emplace_back(profile.name);
  }
  return names;
}

Result<kernel::NicDescription> parse_profile(const std::string& text, const std::string& origin) {
  try {
    const auto description = to_description(YAML::Load(text), origin);
    if (!description) {
      return tl::unexpected(description.error());
    }
    auto parsed = kernel::nic_from_text(*description);
    if (!parsed) {
      return fail(ErrorCode::parse_error, origin + ": " + parsed.error().message);
    }
    if (const auto valid = kernel::validate(*parsed); !valid) {
      return fail(ErrorCode::invalid_argument, origin + ": " + valid.error().message);
    }
    return parsed;
  } catch (const std::exception& error) {  // yaml-cpp speaks in exceptions; they end here
    return fail(ErrorCode::parse_error, origin + ": " + error.what());
  }
}

Result<kernel::NicDescription> load_profile(const std::string& name_or_file) {
  const auto* const found =
      std::find_if(std::begin(kBuiltinProfiles), std::end(kBuiltinProfiles),
                   [&](const BuiltinProfile& profile) { return name_or_file == profile.name; });
  if (found != std::end(kBuiltinProfiles)) {
    return parse_profile(found->text, "profile " + name_or_file);
  }
  if (!name_or_file.ends_with(".yaml")) {
    return fail(ErrorCode::not_found, "there is no device profile \"" + name_or_file +
                                          "\"; known are " + list_of(profile_names()) +
                                          ", or give a *.yaml file");
  }
  std::ifstream file(name_or_file);
  if (!file) {
    return fail(ErrorCode::not_found, "cannot read the device profile " + name_or_file);
  }
  return parse_profile(std::string(std::istreambuf_iterator<char>(file), {}), name_or_file);
}

std::vector<std::pair<std::string, std::string>> efa_environment() {
  return {
      // Programs on one machine are to meet on the emulated network, not in shared memory beside
      // it.
      {"FI_EFA_ENABLE_SHM_TRANSFER", "0"},
      // Newer libfabric bypasses the verbs library, and with it the hooks that make progress cheap.
      {"FI_EFA_USE_DATA_PATH_DIRECT", "0"},
      // The provider posts all the receives there are, and uses their buffers in turn: 75 MB per
      // endpoint that no cache holds.
      {"FI_EFA_RX_SIZE", "1024"},
      // Its emulation of long messages copies each byte once more than a read does, which costs a
      // processor here and not there.
      {"FI_EFA_INTER_MIN_READ_MESSAGE_SIZE", "65536"},
  };
}

}  // namespace weft::emu
