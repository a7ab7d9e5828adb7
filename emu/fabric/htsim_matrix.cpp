// Owns the grammar of `.cm` files.
//
//   Nodes 16                  header: numbers of nodes, connections and triggers
//   Connections 2
//   Triggers 1
//   0->1 id 1 start 0 size 4096 send_done_trigger 1
//   2->3 id 2 trigger 1 size 4096
//   trigger id 1 oneshot
//
// A trigger may be used before it is declared; finish() checks that each was.
#include <algorithm>
#include <charconv>
#include <optional>
#include <sstream>
#include <string_view>
#include <unordered_map>

#include "emu/fabric/traffic_matrix.hpp"

namespace weft::fabric {
namespace {

constexpr std::uint64_t kMaxFlows = 1U << 26;

std::optional<std::uint64_t> number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc{} || end != text.data() + text.size() || text.empty()) {
    return std::nullopt;
  }
  return value;
}

// Reads line by line; the first problem, with its line, ends the reading.
class MatrixReader {
 public:
  MatrixReader(const std::string& file, const std::string& text) : file_(file), in_(text) {}

  Result<TrafficMatrix> read() {
    std::string line;
    while (std::getline(in_, line)) {
      ++line_;
      if (!line.empty() && line.back() == '\r') {
        line.pop_back();
      }
      words_.clear();
      std::istringstream split(line);
      for (std::string word; split >> word;) {
        words_.push_back(word);
      }
      if (words_.empty() || words_.front().front() == '#') {
        continue;
      }
      const std::string& first = words_.front();
      const bool ok = first.find("->") != std::string::npos ? flow()
                      : first == "trigger"                  ? trigger()
                      : first == "failure"
                          ? bad("failure lines are not read; use 'faults' of a scenario instead")
                          : header();
      if (!ok) {
        return fail(ErrorCode::parse_error, problem_);
      }
    }
    if (!finish()) {
      return fail(ErrorCode::parse_error, problem_);
    }
    return std::move(matrix_);
  }

 private:
  bool bad(const std::string& what) {
    problem_ = file_ + ":" + std::to_string(line_) + ": " + what;
    return false;
  }

  bool header() {
    const std::string& key = words_.front();
    const auto value = number(words_.size() == 2 ? words_[1] : std::string());
    if (in_body_) {
      return bad("'" + key + "' after the first connection; the header comes first");
    }
    if (key != "Nodes" && key != "Connections" && key != "Triggers" && key != "Failures") {
      return bad("unknown word '" + key +
                 "'; expected Nodes, Connections, Triggers, or a line 'A->B ...'");
    }
    if (!value || *value > kMaxFlows) {
      return bad("'" + key + "' needs one whole number up to 67108864");
    }
    if (key == "Failures" && *value > 0) {
      return bad("failures are not read; use 'faults' of a scenario instead");
    }
    auto& slot = key == "Nodes" ? nodes_ : key == "Connections" ? connections_ : triggers_;
    if (key != "Failures") {
      slot = *value;
    }
    return true;
  }

  // The trigger of that id: its index, made on first mention.
  std::uint32_t trigger_index(std::uint64_t id) {
    const auto [it, added] =
        index_of_.emplace(id, static_cast<std::uint32_t>(matrix_.triggers.size()));
    if (added) {
      matrix_.triggers.emplace_back();
      declared_.push_back(0);
      ids_.push_back(id);
    }
    return it->second;
  }

  // A line `A->B key value ...`. Times are in picoseconds.
  bool flow() {
    in_body_ = true;
    const std::string& ends = words_.front();
    const auto arrow = ends.find("->");
    const auto source = number(std::string_view(ends).substr(0, arrow));
    const auto destination = number(std::string_view(ends).substr(arrow + 2));
    if (!nodes_) {
      return bad("a connection before the line 'Nodes N'");
    }
    if (!source || !destination || *source >= *nodes_ || *destination >= *nodes_) {
      return bad("'" + ends + "' must name two nodes from 0 to " +
                 std::to_string(*nodes_ - (*nodes_ > 0 ? 1 : 0)));
    }
    if (*source == *destination) {
      return bad("'" + ends + "' connects a node with itself");
    }
    FlowSpec flow;
    flow.source = static_cast<PortId>(*source);
    flow.destination = static_cast<PortId>(*destination);
    bool has_start = false;
    bool has_id = false;
    if (words_.size() % 2 == 0) {
      return bad("each word of a connection needs a value after it");
    }
    for (std::size_t i = 1; i + 1 < words_.size(); i += 2) {
      const std::string& key = words_[i];
      const auto value = number(words_[i + 1]);
      if (!value) {
        return bad("'" + key + "' needs a whole number, found '" + words_[i + 1] + "'");
      }
      const bool names = key == "id" || key == "msg" || key.ends_with("trigger");
      if (names && *value == 0) {
        return bad("'" + key + "' counts from 1");
      }
      if (key == "start") {
        has_start = true;
        if (*value > 1'000'000'000'000'000ULL) {
          return bad("'start' is in picoseconds and may be at most 1000 s");
        }
        flow.start = static_cast<Picos>(*value);
      } else if (key == "size") {
        if (*value > 1'000'000'000'000'000ULL) {
          return bad("'size' is larger than 10^15 bytes");
        }
        flow.bytes = *value;
      } else if (key == "trigger") {
        flow.trigger = trigger_index(*value);
      } else if (key == "send_done_trigger") {
        flow.on_sent = trigger_index(*value);
      } else if (key == "recv_done_trigger") {
        flow.on_received = trigger_index(*value);
      } else if (key == "id") {
        has_id = true;
      } else if (key != "msg" && key != "prio") {
        return bad("unknown word '" + key +
                   "'; a connection has id, start, size, msg, trigger, send_done_trigger, "
                   "recv_done_trigger, prio");
      }
    }
    if (has_start == (flow.trigger != kNone)) {
      return bad("a connection has either 'start' or 'trigger'");
    }
    if (flow.trigger != kNone && !has_id) {
      return bad("a connection with 'trigger' needs an 'id'");
    }
    if (flow.bytes == 0) {
      return bad("a connection needs a 'size' of at least 1 byte");
    }
    matrix_.flows.push_back(flow);
    return true;
  }

  // A line `trigger id J KIND`. Flows that name the trigger may come before or after it.
  bool trigger() {
    in_body_ = true;
    if (words_.size() < 4 || words_[1] != "id") {
      return bad("expected 'trigger id J oneshot|multishot|barrier [count K]'");
    }
    const auto id = number(words_[2]);
    if (!id || *id == 0) {
      return bad("a trigger's id counts from 1");
    }
    const std::uint32_t index = trigger_index(*id);
    if (declared_[index] != 0) {
      return bad("trigger " + words_[2] + " is declared twice");
    }
    declared_[index] = 1;
    ++declarations_;
    TriggerSpec& spec = matrix_.triggers[index];
    if (words_[3] == "oneshot") {
      spec.kind = TriggerSpec::Kind::oneshot;
    } else if (words_[3] == "multishot") {
      spec.kind = TriggerSpec::Kind::multishot;
    } else if (words_[3] == "barrier") {
      spec.kind = TriggerSpec::Kind::barrier;
      const auto count =
          words_.size() == 6 && words_[4] == "count" ? number(words_[5]) : std::nullopt;
      if (!count || *count == 0 || *count > kMaxFlows) {
        return bad("a barrier needs 'count K' with K at least 1");
      }
      spec.count = static_cast<std::uint32_t>(*count);
      return true;
    } else {
      return bad("a trigger is oneshot, multishot or barrier, not '" + words_[3] + "'");
    }
    return words_.size() == 4 || bad("unexpected '" + words_[4] + "'");
  }

  bool finish() {
    if (!nodes_) {
      line_ = std::max<std::size_t>(line_, 1);
      return bad("the line 'Nodes N' is missing; a matrix begins with it and 'Connections C'");
    }
    if (connections_ && *connections_ != matrix_.flows.size()) {
      return bad("the header says " + std::to_string(*connections_) +
                 " connections, the file has " + std::to_string(matrix_.flows.size()));
    }
    if (triggers_.value_or(0) != declarations_) {
      return bad("the header says " + std::to_string(triggers_.value_or(0)) +
                 " triggers, the file declares " + std::to_string(declarations_));
    }
    for (std::size_t i = 0; i < declared_.size(); ++i) {
      if (declared_[i] == 0) {
        return bad("trigger " + std::to_string(ids_[i]) +
                   " is used but not declared; add a line 'trigger id " + std::to_string(ids_[i]) +
                   " oneshot'");
      }
    }
    matrix_.nodes = static_cast<std::uint32_t>(*nodes_);
    return true;
  }

  std::string file_;
  std::istringstream in_;
  std::size_t line_ = 0;
  std::vector<std::string> words_;
  bool in_body_ = false;
  std::optional<std::uint64_t> nodes_;
  std::optional<std::uint64_t> connections_;
  std::optional<std::uint64_t> triggers_;
  std::unordered_map<std::uint64_t, std::uint32_t> index_of_;
  std::vector<std::uint8_t> declared_;
  std::vector<std::uint64_t> ids_;
  std::uint64_t declarations_ = 0;
  TrafficMatrix matrix_;
  std::string problem_;
};

}  // namespace

Result<TrafficMatrix> read_htsim_matrix(const std::string& file_name, const std::string& text) {
  return MatrixReader(file_name, text).read();
}

Result<void> validate(const TrafficMatrix& matrix, std::uint32_t ports) {
  const auto bad = [](const std::string& text) {
    return fail(ErrorCode::invalid_argument, "traffic: " + text);
  };
  if (matrix.nodes > ports) {
    return bad("it needs " + std::to_string(matrix.nodes) + " NICs, the topology has " +
               std::to_string(ports) + "; use a larger topology or fewer nodes");
  }
  for (std::size_t i = 0; i < matrix.flows.size(); ++i) {
    const FlowSpec& flow = matrix.flows[i];
    const auto known = [&](std::uint32_t trigger) {
      return trigger == kNone || trigger < matrix.triggers.size();
    };
    if (flow.source >= ports || flow.destination >= ports || flow.source == flow.destination) {
      return bad("flow " + std::to_string(i) + " from " + std::to_string(flow.source) + " to " +
                 std::to_string(flow.destination) + ": needs two different NICs from 0 to " +
                 std::to_string(ports - 1));
    }
    if (flow.bytes == 0 || !known(flow.trigger) || !known(flow.on_sent) ||
        !known(flow.on_received)) {
      return bad("flow " + std::to_string(i) + ": needs at least 1 byte, and triggers that exist");
    }
  }
  return {};
}

}  // namespace weft::fabric
