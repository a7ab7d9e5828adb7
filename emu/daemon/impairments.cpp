// Owns turning impairments into faults.
//
// An impairment is what `weft impair` has set for a pattern of links: a set of fields that later
// commands add to, change or take away. The network knows only faults, which begin and end. So each
// change makes new faults from all fields together, and ends those that stood for the former
// fields.
#include "emu/daemon/impairments.hpp"

#include <algorithm>
#include <array>
#include <optional>

#include "emu/daemon/network_control.hpp"
#include "emu/fabric/topology_yaml.hpp"
#include "srd/base/joined.hpp"

namespace weft::daemon {
namespace {

using nlohmann::json;

constexpr std::array kFields{
    "down",       "rate",        "rate_factor", "extra_delay",   "jitter", "loss",     "burst_loss",
    "corruption", "duplication", "reordering",  "reorder_delay", "grey",   "min_bytes"};
constexpr std::size_t kMaxPatterns = 1024;

std::string text_of(const json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

// The faults for these fields: one; or one per link if a rate is given, because a fault has a
// factor of the link's own rate.
Result<std::vector<fabric::Fault>> faults_of(const fabric::Topology& topology,
                                             const std::string& link, json fields) {
  std::optional<Rate> rate;
  if (fields.contains("rate")) {
    rate = fabric::parse_rate(text_of(fields["rate"]));
    if (!rate || rate->bits_per_second() == 0) {
      return fail(ErrorCode::invalid_argument, "rate: expected a rate such as 1Gbps, found '" +
                                                   text_of(fields["rate"]) +
                                                   "' (to stop a link, take it down)");
    }
    fields.erase("rate");
  }
  fields["link"] = link;
  fabric::YamlFile file("impair");
  const YAML::Node node = file.load(fields.dump());
  const fabric::Fault fault =
      file.failed() ? fabric::Fault{} : fabric::read_fault(file, node, link);
  if (file.failed()) {
    return tl::unexpected(file.error());
  }
  if (!rate) {
    return std::vector{fault};
  }
  std::vector<fabric::Fault> faults;
  for (const fabric::LinkId id : topology.find_links(link)) {
    fabric::Fault one = fault;
    one.where = topology.link_name(id);
    one.impairment.rate_factor *=
        static_cast<double>(rate->bits_per_second()) /
        static_cast<double>(topology.links()[id].properties.rate.bits_per_second());
    faults.push_back(one);
  }
  return faults;
}

}  // namespace

Result<void> Impairments::set(NetworkControl& network, const std::string& link,
                              const nlohmann::json& fields) {
  if (!fields.is_object() || fields.empty()) {
    return fail(ErrorCode::invalid_argument, "give at least one impairment, such as loss: 0.01");
  }
  for (const auto& [key, value] : fields.items()) {
    if (std::find(kFields.begin(), kFields.end(), key) == kFields.end()) {
      return fail(ErrorCode::invalid_argument,
                  "there is no impairment '" + key + "'; there are: " + joined(kFields, ", "));
    }
  }
  if (const auto links = network.topology_to_be().links_called(link); !links) {
    return tl::unexpected(links.error());
  }
  const auto before = by_link_.find(link);
  if (before == by_link_.end() && by_link_.size() >= kMaxPatterns) {
    return fail(ErrorCode::out_of_resources, "too many impairments; reset some");
  }
  nlohmann::json merged =
      before == by_link_.end() ? nlohmann::json::object() : before->second.fields;
  merged.merge_patch(fields);  // null takes a field away
  if (merged.empty()) {        // nothing is left of it
    return before == by_link_.end() ? Result<void>{} : reset(network, link);
  }
  const auto faults = faults_of(network.topology_to_be(), link, merged);
  if (!faults) {
    return tl::unexpected(faults.error());
  }
  // The new faults begin before the old ones end: no frame passes unimpaired in between, and after
  // an error everything is as before.
  std::vector<std::uint32_t> numbers;
  for (const fabric::Fault& fault : *faults) {
    const auto applied = network.apply(fault);
    if (!applied) {
      for (const std::uint32_t number : numbers) {
        (void)network.end_fault(number);
      }
      return tl::unexpected(applied.error());
    }
    numbers.push_back(*applied);
  }
  Impaired& impaired = by_link_[link];
  for (const std::uint32_t number : impaired.faults) {
    (void)network.end_fault(number);
  }
  impaired.fields = merged;
  impaired.faults = numbers;
  return {};
}

Result<void> Impairments::reset(NetworkControl& network, const std::string& link) {
  if (!link.empty() && !by_link_.contains(link)) {
    return fail(ErrorCode::not_found, "nothing is impaired as '" + link + "'");
  }
  for (auto impaired = by_link_.begin(); impaired != by_link_.end();) {
    if (!link.empty() && impaired->first != link) {
      ++impaired;
      continue;
    }
    for (const std::uint32_t number : impaired->second.faults) {
      (void)network.end_fault(number);
    }
    impaired = by_link_.erase(impaired);
  }
  return {};
}

nlohmann::json Impairments::json() const {
  nlohmann::json list = nlohmann::json::array();
  for (const auto& [link, impaired] : by_link_) {
    nlohmann::json one = impaired.fields;
    one["link"] = link;
    list.push_back(one);
  }
  return list;
}

}  // namespace weft::daemon
