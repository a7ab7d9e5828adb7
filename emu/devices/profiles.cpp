// Owns reading profiles. A profile names every ability of its kind, each with its value and a mark
// that says how well it is known (fact or assumption); missing and unknown fields are errors, so
// that no device has a limit that was not meant.
#include "emu/devices/profiles.hpp"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <system_error>
#include <weft/builtin_profiles.hpp>

#include "emu/devices/registry.hpp"
#include "srd/base/joined.hpp"

namespace weft::devices {
namespace {

// Numbers may be written in hexadecimal. What is none, or too large for any field, stays as it is.
std::string plain_value(const std::string& value) {
  if (!value.starts_with("0x")) {
    return value;
  }
  std::uint64_t number = 0;
  const char* const end = value.data() + value.size();
  const auto [read, error] = std::from_chars(value.data() + 2, end, number, 16);
  return error == std::errc{} && read == end ? std::to_string(number) : value;
}

tl::unexpected<Error> bad_field(const std::string& where, const std::string& name,
                                const std::string& what) {
  return fail(ErrorCode::parse_error, where + ": field " + name + " " + what);
}

// Checks one entry of `fields:` and appends its line to `text`.
Result<void> take_field(const Personality& kind, const std::string& where, const std::string& name,
                        const YAML::Node& entry, std::string& text) {
  const bool is_map = entry.IsMap();
  const auto mark = is_map ? entry["mark"].as<std::string>("") : "";
  if (!is_map || !entry["value"] || (mark != "fact" && mark != "assumption")) {
    return bad_field(where, name, "needs `value:` and `mark: fact` or `mark: assumption`");
  }
  const auto value = entry["value"].as<std::string>();
  const std::string line = name + " " + plain_value(value) + "\n";
  if (!kind.read(line)) {
    return bad_field(where, name,
                     "is \"" + value +
                         "\"; allowed are numbers of up to 32 bits, or true and false for "
                         "abilities");
  }
  text += line;
  return {};
}

Result<std::string> read_abilities(const Personality& kind, const YAML::Node& fields,
                                   const std::string& origin) {
  const std::vector<std::string> known = kind.profile_fields();
  std::vector<std::string> missing = known;
  std::string text;
  for (const auto& field : fields) {
    const auto name = field.first.as<std::string>();
    const std::string where = origin + ":" + std::to_string(field.first.Mark().line + 1);
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      return bad_field(where, name, "is none of a profile's: " + joined(known, ", "));
    }
    if (std::erase(missing, name) == 0) {
      return bad_field(where, name, "is there twice");
    }
    if (const auto taken = take_field(kind, where, name, field.second, text); !taken) {
      return tl::unexpected(taken.error());
    }
  }
  if (!missing.empty()) {
    return fail(ErrorCode::parse_error, origin +
                                            ": these fields are missing: " + joined(missing, ", ") +
                                            "; every profile says all of them, each with its mark");
  }
  return text;
}

Result<Profile> read_profile(const Personality& otherwise, const YAML::Node& root,
                             const std::string& origin) {
  const YAML::Node fields = root["fields"];
  if (!root["profile"] || !fields || !fields.IsMap()) {
    return fail(ErrorCode::parse_error, origin + ": needs `profile: NAME` and a map `fields:`");
  }
  Profile profile{&otherwise, root["profile"].as<std::string>(), {}};
  if (root["kind"]) {
    const auto name = root["kind"].as<std::string>();
    profile.kind = find_kind(name);
    if (profile.kind == nullptr) {
      return fail(ErrorCode::parse_error, origin + ": there is no kind of device \"" + name +
                                              "\"; known are " + names_of_kinds());
    }
  }
  const auto abilities = read_abilities(*profile.kind, fields, origin);
  if (!abilities) {
    return tl::unexpected(abilities.error());
  }
  profile.abilities = *abilities;
  if (const auto valid = profile.kind->validate(profile.abilities); !valid) {
    return fail(ErrorCode::invalid_argument, origin + ": " + valid.error().message);
  }
  return profile;
}

}  // namespace

const Profile& Profile::of_nic(std::size_t index) const {
  const std::size_t turn = index % (others.size() + 1);
  return turn == 0 ? *this : others[turn - 1];
}

// Devices of each kind are counted by themselves, also where it comes several times in a turn, as
// with other profiles.
Result<std::string> Profile::device_name(std::size_t index) const {
  if (names) {
    return names->of(index);
  }
  const Personality* const own = of_nic(index).kind;
  std::size_t earlier = 0;
  for (std::size_t nic = 0; nic < index; ++nic) {
    earlier += of_nic(nic).kind == own ? 1 : 0;
  }
  return own->device_name(earlier);
}

std::vector<std::string> profile_names(const Personality& kind) {
  std::vector<std::string> names;
  for (const BuiltinProfile& profile : kBuiltinProfiles) {
    if (kind.kind() == profile.kind) {
      names.emplace_back(profile.name);
    }
  }
  return names;
}

Result<Profile> parse_profile(const Personality& kind, const std::string& text,
                              const std::string& origin) {
  try {
    return read_profile(kind, YAML::Load(text), origin);
  } catch (const std::exception& error) {  // yaml-cpp speaks in exceptions; they end here
    return fail(ErrorCode::parse_error, origin + ": " + error.what());
  }
}

Result<Profile> load_profile(const Personality& kind, const std::string& name_or_file) {
  const auto* const found = std::find_if(
      std::begin(kBuiltinProfiles), std::end(kBuiltinProfiles), [&](const BuiltinProfile& profile) {
        return kind.kind() == profile.kind && name_or_file == profile.name;
      });
  if (found != std::end(kBuiltinProfiles)) {
    return parse_profile(kind, found->text, "profile " + name_or_file);
  }
  if (!name_or_file.ends_with(".yaml")) {
    return fail(ErrorCode::not_found, "there is no device profile \"" + name_or_file +
                                          "\"; known are " + joined(profile_names(kind), ", ") +
                                          ", or give a *.yaml file");
  }
  std::ifstream file(name_or_file);
  if (!file) {
    return fail(ErrorCode::not_found, "cannot read the device profile " + name_or_file);
  }
  auto profile =
      parse_profile(kind, std::string(std::istreambuf_iterator<char>(file), {}), name_or_file);
  if (profile && profile->kind != &kind) {
    return fail(ErrorCode::invalid_argument, name_or_file + ": is a profile of the kind " +
                                                 std::string(profile->kind->kind()) + ", not of " +
                                                 std::string(kind.kind()));
  }
  return profile;
}

}  // namespace weft::devices
