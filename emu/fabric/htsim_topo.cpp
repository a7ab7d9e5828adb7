// Owns the grammar of `.topo` files.
//
// Lines of a key and a value: a header (Nodes, Tiers, Podsize), then a block for each tier, which
// begins with "Tier N". parse() collects the numbers, read_htsim_topology() checks them and fills a
// FatTreeSpec; what is left of checks is fat_tree()'s.
#include "emu/fabric/htsim_topo.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <sstream>

namespace weft::fabric {
namespace {

constexpr double kMax = 1 << 20;

// The keys of one tier, and the line where it begins, for errors.
struct TierLines {
  std::map<std::string, double> values;
  std::size_t line = 0;
};

struct Parsed {
  std::map<std::string, double> header;
  std::optional<TierLines> tiers[3];
};

class Reader {
 public:
  Reader(const std::string& file, const std::string& text) : file_(file), in_(text) {}

  Result<Parsed> parse() {
    Parsed parsed;
    std::map<std::string, double>* into = &parsed.header;
    std::string line;
    while (std::getline(in_, line)) {
      ++line_;
      std::istringstream words(line);
      std::string key;
      if (!(words >> key) || key.front() == '#') {
        continue;
      }
      std::transform(key.begin(), key.end(), key.begin(),
                     [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
      std::string value;
      std::string extra;
      if (!(words >> value)) {
        return bad("'" + key + "' needs a value");
      }
      if (words >> extra && extra.front() != '#') {
        return bad("unexpected '" + extra + "' after the value of '" + key + "'");
      }
      double number = 0;
      const auto [end, status] = std::from_chars(value.data(), value.data() + value.size(), number);
      if (status != std::errc{} || end != value.data() + value.size() || !std::isfinite(number) ||
          number < 0) {
        return bad("'" + key + "' must be a number that is not negative, found '" + value + "'");
      }
      if (key == "tier") {
        if (number != 0 && number != 1 && number != 2) {
          return bad("tiers are numbered 0 (ToR), 1 and 2");
        }
        auto& tier = parsed.tiers[static_cast<std::size_t>(number)];
        if (tier) {
          return bad("tier " + value + " is described twice");
        }
        tier.emplace();
        tier->line = line_;
        into = &tier->values;
        continue;
      }
      if (auto ok = known(key, into == &parsed.header); !ok) {
        return tl::unexpected<Error>(ok.error());
      }
      if (!into->emplace(key, number).second) {
        return bad("'" + key + "' is given twice here");
      }
    }
    return parsed;
  }

  tl::unexpected<Error> bad(const std::string& what) const {
    return fail(ErrorCode::parse_error, file_ + ":" + std::to_string(line_) + ": " + what);
  }
  void at(std::size_t line) { line_ = line; }

 private:
  Result<void> known(const std::string& key, bool header) const {
    static constexpr const char* kHeader[] = {"nodes", "tiers", "podsize"};
    static constexpr const char* kTier[] = {
        "downlink_speed_gbps", "radix_down", "radix_up", "downlink_latency_ns", "switch_latency_ns",
        "oversubscribed",      "bundle",     "queue_up", "queue_down"};
    const auto is = [&](const char* name) { return key == name; };
    const bool ok = header ? std::any_of(std::begin(kHeader), std::end(kHeader), is)
                           : std::any_of(std::begin(kTier), std::end(kTier), is);
    if (ok) {
      return {};
    }
    return bad("unknown key '" + key + "'; " +
               (header ? "before the first 'Tier' there may be Nodes, Tiers and Podsize"
                       : "a tier has Downlink_speed_Gbps, Radix_Down, Radix_Up, "
                         "Downlink_Latency_ns, Switch_Latency_ns, "
                         "Oversubscribed, Bundle, Queue_Up and Queue_Down"));
  }

  std::string file_;
  std::istringstream in_;
  std::size_t line_ = 0;
};

// The number under that key, or `otherwise`.
double value_of(const TierLines& lines, const char* key, double otherwise) {
  const auto it = lines.values.find(key);
  return it == lines.values.end() ? otherwise : it->second;
}

// How many cables a switch of one tier has in each direction.
struct Radix {
  std::uint32_t down = 1;
  std::uint32_t up = 1;
};

// What the header says. Afterwards it is known how many tiers there have to be.
Result<FatTreeSpec> read_header(const Reader& reader, Parsed& parsed) {
  for (const char* key : {"nodes", "tiers", "podsize"}) {
    const auto it = parsed.header.find(key);
    if (it == parsed.header.end() || it->second < 1 || it->second > kMax ||
        it->second != std::floor(it->second)) {
      return reader.bad(std::string("the header needs '") + key +
                        "' as a whole number from 1 to 1048576");
    }
  }
  FatTreeSpec spec;
  const double tiers = parsed.header["tiers"];
  if (tiers != 2 && tiers != 3) {
    return reader.bad("Tiers must be 2 or 3");
  }
  spec.tiers = static_cast<unsigned>(tiers);
  spec.hosts = static_cast<std::uint32_t>(parsed.header["nodes"]);
  spec.hosts_per_pod = static_cast<std::uint32_t>(parsed.header["podsize"]);
  return spec;
}

// Where a tier does not say its way up, that follows from the way down and the oversubscription.
Result<Radix> read_radix(const Reader& reader, const TierLines& lines, bool top) {
  double up = value_of(lines, "radix_up", 0);
  const double down = value_of(lines, "radix_down", 0);
  if (down < 1 || down > kMax) {
    return reader.bad("this tier needs Radix_Down, at least 1");
  }
  if (top && up != 0) {
    return reader.bad("the top tier has no Radix_Up");
  }
  if (!top && up == 0) {
    up = down / std::max(value_of(lines, "oversubscribed", 1), 1e-3);
  }
  if (!top && (up < 1 || up > kMax)) {
    return reader.bad("this tier needs Radix_Up, at least 1");
  }
  if (const double bundle = value_of(lines, "bundle", 1);
      bundle < 1 || std::fmod(down, bundle) != 0) {
    return reader.bad("Radix_Down must be a multiple of Bundle");
  }
  return Radix{static_cast<std::uint32_t>(down), static_cast<std::uint32_t>(up)};
}

// Rate, delays and queues of the cables of one tier. What the file does not say is left alone.
Result<void> read_cables(const Reader& reader, const TierLines& lines, unsigned tier,
                         FatTreeSpec& spec) {
  if (const double speed = value_of(lines, "downlink_speed_gbps", 0); speed != 0) {
    if (speed > 100'000 || speed < 0.001) {
      return reader.bad("Downlink_speed_Gbps must lie between 0.001 and 100000");
    }
    spec.rate[tier] = Rate::gbps(speed);
  }
  const auto time = [&](const char* key, Duration& to) {
    if (const double ns = value_of(lines, key, -1); ns >= 0 && ns < 1e12) {
      to = Duration{static_cast<std::int64_t>(ns)};
    }
  };
  time("downlink_latency_ns", spec.delay[tier]);
  time("switch_latency_ns", spec.latency[tier]);
  spec.queue_up[tier] = static_cast<Bytes>(std::min(value_of(lines, "queue_up", 0), 1e12));
  spec.queue_down[tier] = static_cast<Bytes>(std::min(value_of(lines, "queue_down", 0), 1e12));
  return {};
}

}  // namespace

Result<Topology> read_htsim_topology(const std::string& file_name, const std::string& text,
                                     const CableSpec& cable) {
  Reader reader(file_name, text);
  auto parsed = reader.parse();
  if (!parsed) {
    return tl::unexpected<Error>(parsed.error());
  }
  auto header = read_header(reader, *parsed);
  if (!header) {
    return tl::unexpected<Error>(header.error());
  }
  FatTreeSpec& spec = *header;
  spec.cable = cable;
  Radix radix[3];
  for (unsigned tier = 0; tier < spec.tiers; ++tier) {
    if (!parsed->tiers[tier]) {
      return reader.bad("tier " + std::to_string(tier) + " is not described; add a block 'Tier " +
                        std::to_string(tier) + "'");
    }
    const TierLines& lines = *parsed->tiers[tier];
    reader.at(lines.line);
    const auto read = read_radix(reader, lines, tier + 1 == spec.tiers);
    if (!read) {
      return tl::unexpected<Error>(read.error());
    }
    radix[tier] = *read;
    if (auto good = read_cables(reader, lines, tier, spec); !good) {
      return tl::unexpected<Error>(good.error());
    }
  }
  spec.tor_down = radix[0].down;
  spec.tor_up = radix[0].up;
  spec.agg_down = radix[1].down;
  spec.agg_up = radix[1].up;
  spec.core_down = radix[2].down;
  // Buffers and thresholds are derived from the cables of the hosts.
  if (!spec.rate[0].is_zero()) {
    spec.cable.rate = spec.rate[0];
  }
  if (spec.delay[0] >= Duration::zero()) {
    spec.cable.delay = spec.delay[0];
  }
  auto made = fat_tree(spec);
  if (!made) {
    return fail(ErrorCode::invalid_argument, file_name + ": " + made.error().message);
  }
  return made;
}

}  // namespace weft::fabric
