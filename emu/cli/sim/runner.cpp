// run_job() runs one job in this process and can show its progress; run_jobs() runs each in a
// process of its own, a few at a time, so that a crash costs one result and memory is given back. A
// child writes its result as JSON into a pipe, and results are told in the order of the jobs.
#include "emu/cli/sim/runner.hpp"

#include <fmt/core.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <optional>
#include <stdexcept>
#include <utility>

#include "emu/cli/complain.hpp"
#include "emu/cli/perf/huge_heap.hpp"
#include "emu/cli/sim/flow_table.hpp"
#include "emu/cli/write_file.hpp"
#include "emu/sim/recorder.hpp"
#include "emu/sim/report.hpp"
#include "srd/base/death_signal.hpp"

namespace weft::cli {
namespace {

using Json = nlohmann::ordered_json;

// User time only: a job that waits for a core must not look slow.
double user_seconds() {
  rusage usage{};
  (void)getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec) +
         static_cast<double>(usage.ru_utime.tv_usec) * 1e-6;
}

// The most memory that this process has ever used: in a child, that of its one run.
double rss_mb() {
  rusage usage{};
  (void)getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

double rounded(double value, double digits) { return std::round(value * digits) / digits; }

Json quantiles_json(const sim::Quantiles& q) {
  return {{"flows", q.flows},
          {"min_us", rounded(q.min_us, 1e3)},
          {"p50_us", rounded(q.p50_us, 1e3)},
          {"p90_us", rounded(q.p90_us, 1e3)},
          {"p99_us", rounded(q.p99_us, 1e3)},
          {"p999_us", rounded(q.p999_us, 1e3)},
          {"max_us", rounded(q.max_us, 1e3)}};
}

// The lists: slowdowns by size class, groups, faults.
void add_lists(Json& json, const sim::RunResult& r) {
  for (const sim::Slowdown& size : r.slowdown) {
    json["slowdown"][size.size] = {{"flows", size.flows},
                                   {"p50", rounded(size.p50, 1e3)},
                                   {"p99", rounded(size.p99, 1e3)},
                                   {"max", rounded(size.most, 1e3)}};
  }
  for (const auto& [name, group] : r.groups) {
    json["groups"][name] = quantiles_json(group);
  }
  for (const sim::FaultTimeline& fault : r.faults) {
    json["faults"].push_back({{"name", fault.name},
                              {"at_us", fault.at_us},
                              {"detected_us", rounded(fault.detected_us, 1e3)},
                              {"abandoned_us", rounded(fault.abandoned_us, 1e3)},
                              {"last_loss_us", rounded(fault.last_loss_us, 1e3)},
                              {"recovered_us", rounded(fault.recovered_us, 1e3)},
                              {"lost_frames", fault.lost_frames}});
  }
}

// Numbers are rounded: the last digits of a double say nothing about the network. `digest` is the
// exact account.
Json result_json(const sim::RunResult& r) {
  Json json = {{"scenario", r.scenario},
               {"variant", r.variant},
               {"seed", r.seed},
               {"hosts", r.hosts},
               {"flows", r.flows},
               {"finished", r.finished},
               {"failed", r.failed},
               {"min_fct_us", rounded(r.fct.min_us, 1e3)},
               {"p50_fct_us", rounded(r.fct.p50_us, 1e3)},
               {"p99_fct_us", rounded(r.fct.p99_us, 1e3)},
               {"tail_fct_us", rounded(r.fct.max_us, 1e3)},
               {"makespan_us", rounded(r.makespan_us, 1e3)},
               {"ideal_us", rounded(r.ideal_us, 1e3)},
               // Of a run that was cut it would look better than it is.
               {"ratio", r.finished == r.flows ? Json(rounded(r.ratio, 1e5)) : Json(nullptr)}};
  json["bound"] = r.checks.empty() ? Json(nullptr) : Json(rounded(r.checks.front().limit, 1e5));
  json["within_bound"] = r.within_bounds;
  json["checks"] = Json::array();
  for (const sim::BoundCheck& check : r.checks) {
    json["checks"].push_back({{"what", check.what},
                              {"value", rounded(check.value, 1e5)},
                              {"limit", check.limit},
                              {"at_least", check.at_least},
                              {"met", check.met}});
  }
  json["jain"] = rounded(r.jain, 1e6);
  json["goodput_gbps"] = rounded(r.goodput_gbps, 1e3);
  json["new_packets"] = r.transport.new_packets;
  json["retransmitted"] = r.transport.retransmitted;
  json["timeouts"] = r.transport.timeouts;
  json["paths_abandoned"] = r.transport.paths_abandoned;
  json["trimmed"] = r.fabric.trimmed;
  json["marked"] = r.fabric.marked;
  json["delivered"] = r.fabric.delivered;
  Json dropped = Json::object();
  for (std::size_t i = 0; i < fabric::kLossReasons; ++i) {
    if (r.fabric.dropped[i] > 0) {
      dropped[fabric::to_string(static_cast<fabric::LossReason>(i))] = r.fabric.dropped[i];
    }
  }
  if (r.damaged > 0) {
    dropped["corrupted"] = r.damaged;
  }
  json["dropped"] = dropped;
  json["longest_queue_bytes"] = rounded(r.longest_queue_bytes, 1);
  json["longest_queue_link"] = r.longest_queue_link;
  add_lists(json, r);
  if (!r.conservation.empty()) {
    json["conservation"] = r.conservation;
  }
  json["simulated_us"] = rounded(r.simulated_us, 1e3);
  json["events"] = r.fabric.events;
  json["cpu_s"] = rounded(r.cpu_seconds, 1e3);
  json["events_per_s"] =
      r.cpu_seconds > 0 ? std::round(static_cast<double>(r.fabric.events) / r.cpu_seconds) : 0;
  json["rss_mb"] = rounded(r.rss_mb, 10);
  json["digest"] = fmt::format("{:016x}", r.digest);
  return json;
}

// One line on the terminal, rewritten a few times a second.
class Progress {
 public:
  explicit Progress(bool show)
      : show_(show && isatty(STDERR_FILENO) != 0), began_(std::chrono::steady_clock::now()) {}
  ~Progress() {
    if (drawn_) {
      complain("\r\033[K");
    }
  }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void update(const sim::Simulation& simulation) {
    const auto now = std::chrono::steady_clock::now();
    if (!show_ || now - last_ < std::chrono::milliseconds{100}) {
      return;
    }
    last_ = now;
    drawn_ = true;
    const double seconds = std::chrono::duration<double>(now - began_).count();
    const auto all = static_cast<double>(simulation.flows().size());
    const auto done = static_cast<double>(simulation.flows_ended());
    const auto filled = static_cast<int>(done / all * 24);
    fmt::print(
        stderr,
        "\r\033[K[{:#>{}}{:.>{}}] {:.0f}/{:.0f} flows  {:.1f} us simulated  {:.2f} M events/s", "",
        filled, "", 24 - filled, done, all, fabric::microseconds(simulation.now()),
        static_cast<double>(simulation.fabric().totals().events) / seconds / 1e6);
    (void)std::fflush(stderr);
  }

 private:
  bool show_;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point began_;
  std::chrono::steady_clock::time_point last_{};
};

}  // namespace

// Names may hold bytes that are no UTF-8; they must not end a run whose results are there.
std::string text_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json run_job(const SimJob& job, bool show_progress) {
  // With the reading of the scenario: it is a part of what the user waits for.
  const double before = user_seconds();
  auto scenario = sim::read_scenario(job.file_name, job.text, job.settings, job.directory);
  if (!scenario) {
    return {{"error", scenario.error().message}, {"usage", true}};
  }
  // What a simulated host takes, roughly; a hint for a heap in huge pages, and no limit.
  constexpr std::size_t kHeapPerHost = 65536;
  if (scenario->topology.ports().size() >= 256) {
    expect_large_heap(scenario->topology.ports().size() * kHeapPerHost);
  }
  sim::Simulation simulation(scenario->topology, scenario->traffic, scenario->options,
                             sim::transport_factory(*scenario));
  // Recording costs time, so runs whose records are not shown go without. Timelines of faults come
  // from the recorder.
  const bool record = !job.report.empty() || !job.trace.empty() || !scenario->faults.empty();
  std::optional<sim::Recorder> recorder;
  if (record) {
    recorder.emplace(*scenario, simulation, !job.report.empty(), !job.trace.empty());
    simulation.observe(&*recorder, recorder->sample_every());
  }
  for (const fabric::Fault& fault : scenario->faults) {
    if (const auto ok = simulation.fabric().apply(0, fault); !ok) {
      return {{"error", ok.error().message}, {"usage", true}};
    }
  }
  {
    Progress progress(show_progress);
    // 2 us of the network at a time. How a run is cut into pieces does not change it.
    while (!simulation.run_for(2'000'000)) {
      progress.update(simulation);
    }
  }
  sim::RunResult result = sim::summarise(*scenario, simulation);
  result.variant = job.variant;
  if (record) {
    result.faults = recorder->timelines();
  }
  check_bounds(job.use_variant_bounds ? job.bounds : scenario->bounds, result);
  result.cpu_seconds = user_seconds() - before;
  result.rss_mb = rss_mb();
  Json json = result_json(result);
  if (!scenario->warnings.empty()) {
    json["warnings"] = scenario->warnings;
  }
  if (!job.report.empty()) {
    write_file(job.report + "/report.html",
               sim::report_html(*scenario, simulation, *recorder, result, text_of(json)));
  }
  if (!job.trace.empty()) {
    write_file(job.trace, recorder->perfetto());
  }
  if (!job.flows.empty()) {
    write_file(job.flows, flow_table(*scenario, simulation, job.flows.ends_with(".csv")));
  }
  return json;
}

namespace {

// A process that runs one job and writes its JSON into the pipe whose other end is `fd`. It dies
// with this process, however that ends.
struct Child {
  pid_t pid = -1;
  int fd = -1;
  std::size_t job = 0;
  std::string text;
};

// If run_jobs() ends by an exception, the children end with it, and none stays a zombie.
struct Children : std::vector<Child> {
  Children() = default;
  ~Children() {
    for (const Child& child : *this) {
      (void)kill(child.pid, SIGKILL);
      (void)close(child.fd);
      (void)waitpid(child.pid, nullptr, 0);
    }
  }
  Children(const Children&) = delete;
  Children& operator=(const Children&) = delete;
};

Child start_child(const std::vector<SimJob>& jobs, std::size_t job) {
  int ends[2];
  if (pipe(ends) != 0) {
    throw std::runtime_error(std::string("no pipe: ") + std::strerror(errno));
  }
  // Otherwise the child would write what is still in our stdio buffers a second time.
  (void)std::fflush(nullptr);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) {
    const int error = errno;
    (void)close(ends[0]);
    (void)close(ends[1]);
    throw std::runtime_error(std::string("no process: ") + std::strerror(error));
  }
  if (pid == 0) {
    die_with(parent, SIGKILL);
    (void)close(ends[0]);
    std::string text;
    try {
      text = text_of(run_job(jobs[job], false));
    } catch (const std::exception& problem) {
      text = text_of({{"error", problem.what()}});
    }
    for (std::size_t at = 0; at < text.size();) {
      const ssize_t n = write(ends[1], text.data() + at, text.size() - at);
      if (n < 0 && errno == EINTR) {
        continue;
      }
      if (n <= 0) {
        _exit(1);
      }
      at += static_cast<std::size_t>(n);
    }
    _exit(0);
  }
  // While it was open here as well, read_child() would never find the end of the pipe.
  (void)close(ends[1]);
  return {pid, ends[0], job, {}};
}

// Reads what the child has written; true when it has ended.
bool read_child(Child& child) {
  char buffer[65536];
  // One read for each that poll() has announced: another one might block.
  const ssize_t n = read(child.fd, buffer, sizeof buffer);
  if (n > 0) {
    child.text.append(buffer, static_cast<std::size_t>(n));
    return false;
  }
  // A signal came first: the next turn reads what is there.
  if (n < 0 && errno == EINTR) {
    return false;
  }
  (void)close(child.fd);
  int status = 0;
  while (waitpid(child.pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    child.text = text_of(
        {{"error", fmt::format("the simulation's process ended by {} {}",
                               WIFSIGNALED(status) ? "signal" : "exit code",
                               WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status))}});
  }
  return true;
}

}  // namespace

void run_jobs(const std::vector<SimJob>& jobs, unsigned processes,
              const std::function<void(std::size_t, const Json&)>& done) {
  // Each child holds one end of a pipe, so poll() waits for results and for deaths alike.
  Children running;
  // Results that came before those of earlier jobs wait here.
  std::map<std::size_t, Json> finished;
  std::size_t next = 0;
  std::size_t told = 0;
  while (told < jobs.size()) {
    while (running.size() < std::max(processes, 1U) && next < jobs.size()) {
      running.push_back(start_child(jobs, next++));
    }
    std::vector<pollfd> fds;
    for (const Child& child : running) {
      fds.push_back({child.fd, POLLIN, 0});
    }
    (void)poll(fds.data(), fds.size(), -1);
    // From the back, so that fds[i] stays that of running[i] when one is removed.
    for (std::size_t i = running.size(); i-- > 0;) {
      if (fds[i].revents != 0 && read_child(running[i])) {
        Json json = Json::parse(running[i].text, nullptr, false);
        finished[running[i].job] =
            json.is_discarded() ? Json{{"error", "unreadable result"}} : std::move(json);
        running.erase(running.begin() + static_cast<std::ptrdiff_t>(i));
      }
    }
    // Tell all that are complete up to the first job that is still running.
    for (auto it = finished.find(told); it != finished.end(); it = finished.find(told)) {
      done(told++, it->second);
      finished.erase(it);
    }
  }
}

}  // namespace weft::cli
