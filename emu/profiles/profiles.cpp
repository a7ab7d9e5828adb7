// Owns reading profiles.
#include "emu/profiles/profiles.hpp"

#include <yaml-cpp/yaml.h>

#include <algorithm>
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
  const bool hexadecimal = value.starts_with("0x");
  return hexadecimal ? std::to_string(std::stoul(value, nullptr, 16)) : value;
}

Result<std::string> to_description(const YAML::Node& root, const std::string& origin) {
  const YAML::Node fields = root["fields"];
  if (!root["profile"] || !fields || !fields.IsMap()) {
    return fail(ErrorCode::parse_error, origin + ": needs `profile: NAME` and a map `fields:`");
  }
  std::string text = "profile " + root["profile"].as<std::string>() + "\n";
  for (const auto& field : fields) {
    const auto name = field.first.as<std::string>();
    const auto mark = field.second["mark"].as<std::string>("");
    if (!field.second["value"] || (mark != "fact" && mark != "assumption")) {
      return fail(
          ErrorCode::parse_error,
          origin + ": field " + name + " needs `value:` and `mark: fact` or `mark: assumption`");
    }
    text += name + " " + plain_value(field.second["value"].as<std::string>()) + "\n";
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
