// Owns reading a link's fault as one of packets, and refusing what only a modelled network could
// do. A field that Impairment gets later must be named here: in one list or in the other.
#include "emu/cli/perf/fault.hpp"

#include "emu/fabric/fault.hpp"
#include "emu/fabric/topology_yaml.hpp"

namespace weft::cli {

Result<srd::FaultIo::Config> parse_packet_fault(const std::string& text) {
  fabric::YamlFile file("--fault '" + text + "'");
  // Faults are of links; to its reader this one is of all of them.
  const YAML::Node node = file.load("{link: '*', " + text + "}");
  const fabric::Fault fault =
      file.failed() ? fabric::Fault{} : fabric::read_fault(file, node, "fault");
  if (file.failed()) {
    return tl::unexpected(file.error());
  }
  const fabric::Impairment& is = fault.impairment;
  // Whatever only a link, a queue or a timetable could do.
  const bool of_links = fault.where != "*" || fault.share != 1 || fault.at != Duration{} ||
                        fault.lasts != Duration{} || fault.every != Duration{} || is.down ||
                        is.rate_factor != 1 || is.grey != 0 || is.burst.enter != 0 ||
                        is.min_bytes != 0 || is.reorder_delay != Duration{};
  if (of_links) {
    return fail(ErrorCode::invalid_argument,
                "--fault '" + text +
                    "': without a modelled network (--io ring) there are only loss, duplication, "
                    "corruption, reordering, extra_delay and jitter, of what both sides send");
  }
  srd::FaultIo::Config config;
  config.loss = is.loss;
  config.duplication = is.duplication;
  config.corruption = is.corruption;
  config.reordering = is.reordering;
  config.delay = is.extra_delay;
  config.jitter = is.jitter;
  return config;
}

}  // namespace weft::cli
