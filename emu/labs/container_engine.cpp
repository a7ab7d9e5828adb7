// Owns starting the engine's program and collecting what it says.
//
// Podman and docker are used as their users do, by command line: there is no library that speaks to
// both, and a command can be repeated by hand when something fails. Many calls run at the same
// time, because each takes a good part of a second.
#include "emu/labs/container_engine.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <memory>
#include <thread>

#include "emu/launch/child.hpp"
#include "emu/launch/interrupt.hpp"
#include "srd/io/posix.hpp"

namespace weft::labs {
namespace {

// How often calls are looked at; short beside what the shortest one takes.
constexpr std::chrono::milliseconds kTurn{2};
constexpr std::size_t kMaxSaid = std::size_t{4} << 20;  // bytes kept of each stream
// Bytes of an error text.
constexpr std::size_t kMaxComplaint = 600;

// What engines say, each time, where there is no syslog.
constexpr std::string_view kNoise = "failed to connect to syslog";

// A call of the engine that is running; destroying it ends the program. Its output goes into memory
// files and not through pipes: what the engine leaves running (conmon, a shim) inherits the
// descriptors and would hold a pipe open, and reading to its end would never return.
class Call {
 public:
  [[nodiscard]] static Result<Call> start(const std::string& program, const Words& command,
                                          std::size_t number) {
    srd::UniqueFd out(::memfd_create("engine-out", MFD_CLOEXEC));
    srd::UniqueFd errors(::memfd_create("engine-errors", MFD_CLOEXEC));
    srd::UniqueFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (!out || !errors || !null) {
      return fail(ErrorCode::out_of_resources, srd::errno_text("memory for an engine's output"));
    }
    launch::ChildOptions options{.words = {program},
                                 .in = null.get(),
                                 .out = out.get(),
                                 .errors = errors.get(),
                                 .death_signal = SIGTERM};
    options.words.insert(options.words.end(), command.begin(), command.end());
    auto child = launch::Child::start(options);
    if (!child) {
      return tl::unexpected(child.error());
    }
    return Call(std::move(*child), std::move(out), std::move(errors), number);
  }

  [[nodiscard]] std::size_t number() const { return number_; }
  [[nodiscard]] std::optional<EngineAnswer> ended() {
    const auto code = child_->ended();
    if (!code) {
      return std::nullopt;
    }
    return EngineAnswer{*code, text_of(out_.get()), text_of(errors_.get())};
  }

 private:
  Call(launch::Child child, srd::UniqueFd out, srd::UniqueFd errors, std::size_t number)
      : child_(std::make_unique<launch::Child>(std::move(child))),
        out_(std::move(out)),
        errors_(std::move(errors)),
        number_(number) {}

  static std::string text_of(int fd) {
    std::string text;
    std::array<char, 4096> some{};
    ssize_t got = 0;
    // pread() and not read(): the child shares the position of the descriptor.
    while (text.size() < kMaxSaid &&
           (got = ::pread(fd, some.data(), some.size(), static_cast<off_t>(text.size()))) > 0) {
      text.append(some.data(), static_cast<std::size_t>(got));
    }
    return text;
  }

  // By pointer: std::erase_if() assigns calls, and a Child cannot be assigned.
  std::unique_ptr<launch::Child> child_;
  srd::UniqueFd out_;
  srd::UniqueFd errors_;
  std::size_t number_;
};

// Engines wait for the kernel and for each other's locks, so more than there are cores.
std::size_t calls_at_a_time() {
  return std::clamp<std::size_t>(2 * std::thread::hardware_concurrency(), 2, 16);
}

}  // namespace

Words lines_of(const std::string& text) {
  Words lines;
  for (std::size_t from = 0; from < text.size();) {
    const std::size_t end = std::min(text.find('\n', from), text.size());
    if (end > from) {
      lines.push_back(text.substr(from, end - from));
    }
    from = end + 1;
  }
  return lines;
}

// A long text is cut at its beginning: the reason of the failure is in its last lines.
std::string EngineAnswer::complaint() const {
  std::string all;
  for (const std::string& line : lines_of(errors.empty() ? out : errors)) {
    if (!line.starts_with(kNoise)) {
      all += (all.empty() ? "" : "; ") + line;
    }
  }
  if (all.size() > kMaxComplaint) {
    all = "..." + all.substr(all.size() - kMaxComplaint);
  }
  return all.empty() ? fmt::format("exit code {}", code) : all;
}

Result<ContainerEngine> ContainerEngine::find(const std::string& asked) {
  // A path is noted for commands that start elsewhere.
  const bool is_path = asked.find('/') != std::string::npos;
  const Words candidates = asked.empty() ? Words{"podman", "docker"}
                           : is_path
                               ? Words{std::filesystem::absolute(asked).lexically_normal().string()}
                               : Words{asked};
  for (const std::string& program : candidates) {
    // A podman may be called docker: it says itself what it is.
    const ContainerEngine engine(program, EngineKind::podman);
    const auto said = engine.run_all({{"--version"}}, Interrupts::heed, {});
    if (said && said->front() && said->front()->code == 0) {
      const bool is_docker = said->front()->out.starts_with("Docker");
      return ContainerEngine(program, is_docker ? EngineKind::docker : EngineKind::podman);
    }
  }
  return fail(ErrorCode::not_found,
              asked.empty()
                  ? "a lab needs a container engine, and there is neither podman nor docker here: "
                    "`apt-get install podman`"
                  : "there is no container engine '" + asked + "': `" + asked +
                        " --version` cannot be run");
}

Result<std::vector<std::optional<EngineAnswer>>> ContainerEngine::run_all(
    const std::vector<Words>& commands, Interrupts interrupts,
    const std::function<bool(std::size_t, const EngineAnswer&)>& go_on) const {
  std::vector<std::optional<EngineAnswer>> answers(commands.size());
  std::vector<Call> calls;
  std::size_t next = 0;
  std::size_t ended = 0;
  std::size_t last = commands.size();
  while (next < last || !calls.empty()) {
    if (interrupts == Interrupts::heed) {
      launch::check_interrupt();  // what is under way ends with `calls`
    }
    while (next < last && calls.size() < calls_at_a_time()) {
      auto call = Call::start(program_, commands[next], next);
      if (!call) {
        return tl::unexpected(call.error());
      }
      calls.push_back(std::move(*call));
      ++next;
    }
    std::erase_if(calls, [&](Call& call) {
      auto answer = call.ended();
      if (!answer) {
        return false;
      }
      if (++ended; go_on && !go_on(ended, *answer)) {
        // No more than what runs already.
        last = next;
      }
      answers[call.number()] = std::move(answer);
      return true;
    });
    std::this_thread::sleep_for(kTurn);
  }
  return answers;
}

Result<std::string> ContainerEngine::ask(const Words& command, Interrupts interrupts) const {
  const auto answers = run_all({command}, interrupts, {});
  if (!answers) {
    return tl::unexpected(answers.error());
  }
  const EngineAnswer& answer = *answers->front();
  if (answer.code != 0) {
    return fail(ErrorCode::io_error,
                fmt::format("`{} {} {}`: {}", program_, command[0],
                            command.size() > 1 ? command[1] : "", answer.complaint()));
  }
  return answer.out;
}

Result<std::vector<ContainerState>> containers_of(const ContainerEngine& engine,
                                                  const LabIdentity& lab) {
  const auto ids = engine.ask(list_containers(lab, false), Interrupts::heed);
  if (!ids) {
    return tl::unexpected(ids.error());
  }
  if (ids->empty()) {
    return std::vector<ContainerState>{};
  }
  const auto said = engine.ask(inspect_containers(lines_of(*ids)), Interrupts::heed);
  return said ? parse_states(*said) : tl::unexpected(said.error());
}

}  // namespace weft::labs
