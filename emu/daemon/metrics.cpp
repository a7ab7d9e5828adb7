// Owns the text that Prometheus reads: GET /metrics on a unix socket, and on a loopback port if one
// was asked for. Figures are copied once per request, so their sums agree with each other.
#include "emu/daemon/metrics.hpp"

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>

#include "srd/run/clock.hpp"

namespace weft::daemon {
namespace {

namespace http = boost::beast::http;

constexpr std::uint32_t kMaxHeader = 8192;

// The format requires these characters to be escaped in the value of a label.
std::string label(const std::string& value) {
  std::string text;
  for (const char c : value) {
    if (c == '\\' || c == '"') {
      text += '\\';
    }
    text += c == '\n' ? ' ' : c;
  }
  return "\"" + text + "\"";
}

class Text {
 public:
  void metric(const char* name, const char* kind, const char* help) {
    name_ = std::string("weft_") + name;
    text_ += "# HELP " + name_ + " " + help + "\n# TYPE " + name_ + " " + kind + "\n";
  }
  template <class Number>
  void value(const std::string& labels, Number number) {
    text_ +=
        name_ + (labels.empty() ? "" : "{" + labels + "}") + " " + std::to_string(number) + "\n";
  }
  [[nodiscard]] std::string take() { return std::move(text_); }

 private:
  std::string name_;
  std::string text_;
};

std::string labels_of(const NetworkFigures::Process& slot) {
  return "host=" + label(slot.nic->host) + ",nic=\"" + std::to_string(slot.nic->index) +
         "\",attachment=\"" + std::to_string(slot.id) + "\",pid=\"" + std::to_string(slot.pid) +
         "\"";
}

void add_processes(const NetworkFigures& figures, Text& text) {
  struct Column {
    const char* name;
    const char* help;
    std::uint64_t SlotCounters::*member;
  };
  // Named from the side of the process: what comes into weftd was sent by the process.
  for (const Column& column :
       {Column{"tx_pkts_total", "Frames that a process sent", &SlotCounters::frames_in},
        Column{"tx_bytes_total", "Bytes that a process sent", &SlotCounters::bytes_in},
        Column{"rx_pkts_total", "Frames given to a process", &SlotCounters::frames_out},
        Column{"rx_bytes_total", "Bytes given to a process", &SlotCounters::bytes_out}}) {
    text.metric(column.name, "counter", column.help);
    for (const NetworkFigures::Process& process : figures.processes) {
      text.value(labels_of(process), process.counters.*column.member);
    }
  }
}

void add_links(const ModelledFigures& modelled, const fabric::Topology& topology, Text& text) {
  struct Column {
    const char* name;
    const char* help;
    std::uint64_t (*value)(const fabric::LinkCounters&);
  };
  for (const Column& column :
       {Column{"link_bytes_total", "Bytes that a link carried",
               [](const fabric::LinkCounters& is) { return is.bytes; }},
        Column{"link_dropped_total", "Frames lost on a link",
               [](const fabric::LinkCounters& is) { return std::uint64_t{is.drops}; }},
        Column{"link_trimmed_total", "Frames whose payload a full queue cut off",
               [](const fabric::LinkCounters& is) { return std::uint64_t{is.trims}; }},
        Column{"link_marked_total", "Frames that got a congestion mark",
               [](const fabric::LinkCounters& is) { return std::uint64_t{is.marks}; }}}) {
    text.metric(column.name, "counter", column.help);
    for (fabric::LinkId link = 0; link < modelled.links.size(); ++link) {
      text.value("link=" + label(topology.link_name(link)), column.value(modelled.links[link]));
    }
  }
  text.metric("network_dropped_total", "counter", "Frames that the network lost, by reason");
  for (std::size_t i = 0; i < fabric::kLossReasons; ++i) {
    text.value("reason=" + label(to_string(static_cast<fabric::LossReason>(i))),
               modelled.totals.dropped[i]);
  }
  text.metric("network_frames_inside", "gauge", "Frames on their way through the network");
  text.value("", modelled.inside);
  text.metric("network_memory_bytes", "gauge", "Memory reserved for them");
  text.value("", modelled.memory);
}

}  // namespace

std::string metrics_text(const ControlView& view) {
  const NetworkFigures figures = view.network.figures();
  Text text;
  text.metric("info", "gauge", "What this is: an EMULATED network");
  text.value("network=" + label(figures.modelled ? view.network.topology_to_be().name : "ideal") +
                 ",seed=\"" + std::to_string(view.seed) + "\"",
             1);
  text.metric("uptime_seconds", "gauge", "Seconds since weftd began");
  text.value("", static_cast<double>(nanoseconds(srd::monotonic_now() - view.started)) / 1e9);
  const SwitchboardCounters& counters = figures.counters;
  text.metric("forwarded_frames_total", "counter", "Frames that weftd gave to processes");
  text.value("", counters.frames);
  text.metric("forwarded_bytes_total", "counter", "Bytes that weftd gave to processes");
  text.value("", counters.bytes);
  text.metric("dropped_frames_total", "counter", "Frames that weftd did not pass on, by reason");
  for (std::size_t i = 0; i < kFrameDrops; ++i) {
    text.value("reason=" + label(to_string(static_cast<FrameDrop>(i))), counters.dropped[i]);
  }
  text.metric("direct_pairs", "gauge", "Pairs of processes with a ring of their own");
  text.value("", view.direct_pairs());
  text.metric("refused_users_total", "counter", "Connections of users who may not attach");
  text.value("", view.refused());
  text.metric("processes", "gauge", "Processes on the network");
  text.value("", figures.processes.size());
  add_processes(figures, text);
  text.metric("forwarding_rounds_total", "counter", "Rounds of the forwarding thread");
  text.value("", figures.forwarder.rounds);
  text.metric("forwarding_calls_total", "counter",
              "Calls of the control thread between two rounds, one at a time");
  text.value("", figures.forwarder.calls);
  if (figures.modelled) {
    add_links(*figures.modelled, view.network.topology_to_be(), text);
  }
  return text.take();
}

std::optional<std::string> answer_http(const ControlView& view, std::string& input, bool& close) {
  http::request_parser<http::empty_body> parser;
  parser.header_limit(kMaxHeader);
  parser.eager(true);
  boost::beast::error_code error;
  const std::size_t used = parser.put(boost::asio::buffer(input), error);
  if (error == http::error::need_more) {
    return std::nullopt;
  }
  const auto reply = [&](unsigned code, const char* reason, const std::string& body) {
    return "HTTP/1.1 " + std::to_string(code) + " " + reason +
           "\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: " +
           std::to_string(body.size()) + (close ? "\r\nConnection: close" : "") + "\r\n\r\n" + body;
  };
  if (error || !parser.is_done()) {
    close = true;
    return reply(400, "Bad Request", "not understood; GET /metrics\n");
  }
  input.erase(0, used);
  const auto& request = parser.get();
  close = !request.keep_alive();
  if (request.method() != http::verb::get) {
    close = true;
    return reply(405, "Method Not Allowed", "only GET /metrics\n");
  }
  if (request.target() != "/metrics" && request.target() != "/") {
    return reply(404, "Not Found", "there is only /metrics\n");
  }
  return reply(200, "OK", metrics_text(view));
}

}  // namespace weft::daemon
