// Owns the order in which a lab's parts come and go, and what is cleared away when that breaks off.
//
// A lab is: weftd, an IP network of the engine, and a container for each host. Its record is
// written before anything else, so that whatever happens later there is somebody who knows what to
// clear away: this process, the next start of any lab, or `weft lab down`.
#include "emu/labs/lab.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "emu/launch/cdi.hpp"
#include "emu/launch/control_client.hpp"
#include "emu/launch/interrupt.hpp"
#include "emu/launch/network_claim.hpp"
#include "emu/launch/weftd_process.hpp"

namespace weft::labs {
namespace {

namespace fs = std::filesystem;

constexpr int kSweeps = 20;  // calls that were killed may still come to something

// Removes containers until there is none: a `run` that was broken off may still bring one. Those
// that are paused are woken first, because a paused container cannot be killed.
Result<void> remove_all_containers(const ContainerEngine& engine, const LabIdentity& lab) {
  Result<void> outcome;
  for (int sweep = 0; sweep < kSweeps; ++sweep) {
    const auto ids = engine.ask(list_containers(lab, false), Interrupts::defer);
    if (!ids || ids->empty()) {
      return ids ? Result<void>{} : tl::unexpected(ids.error());
    }
    const auto paused = engine.ask(list_containers(lab, true), Interrupts::defer);
    if (paused && !paused->empty()) {
      Words words{"unpause"};
      std::ranges::copy(lines_of(*paused), std::back_inserter(words));
      (void)engine.ask(words, Interrupts::defer);
    }
    // In one call: podman ends several at a time, and starts in the time that one takes.
    const auto removed =
        engine.ask(remove_containers(engine.kind(), lines_of(*ids)), Interrupts::defer);
    outcome = removed ? Result<void>{} : tl::unexpected(removed.error());
  }
  return outcome ? fail(ErrorCode::io_error, "containers of the lab come back again and again")
                 : outcome;
}

Result<void> remove_networks(const ContainerEngine& engine, const LabIdentity& lab) {
  const auto ids = engine.ask(list_networks(lab), Interrupts::defer);
  if (!ids || ids->empty()) {
    return ids ? Result<void>{} : tl::unexpected(ids.error());
  }
  Words words{"network", "rm"};
  std::ranges::copy(lines_of(*ids), std::back_inserter(words));
  return engine.ask(words, Interrupts::defer).map([](const std::string&) {});
}

void remove_files(const std::string& directory) {
  launch::remove_cdi(directory);
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(directory, error)) {
    fs::remove_all(entry.path(), error);
  }
}

// Takes everything of a lab away except its directory, on which the caller has a lock. Returns
// whether weftd was there. It does not stop for an interrupt.
Result<bool> clear_away(const ContainerEngine& engine, const LabIdentity& lab) {
  auto done = remove_all_containers(engine, lab);
  if (done) {
    done = remove_networks(engine, lab);
  }
  if (!done) {
    return tl::unexpected(done.error());
  }
  const auto stopped = launch::stop_weftd(lab.directory);
  if (!stopped) {
    return fail(stopped.error().code, "weftd of '" + lab.name + "' " + stopped.error().message);
  }
  remove_files(lab.directory);
  return stopped;
}

// Clears away labs whose weft was killed, while it started them or while it ran them (run_lab()).
// Their directories are not locked any more, which tells them from labs that are being started or
// run right now.
void clear_broken_labs(const Progress& progress) {
  for (const std::string& name : labs_there()) {
    const auto directory = launch::named_directory(name, false);
    const auto record = directory ? read_record(*directory) : tl::unexpected(directory.error());
    if (!record || (record->complete && !record->is_bound)) {
      continue;
    }
    const srd::UniqueFd lock(
        ::open(directory->c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
    if (!lock || ::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
      continue;  // it is just being started
    }
    const auto engine = ContainerEngine::find(record->engine);
    if (engine && clear_away(*engine, {name, *directory})) {
      std::error_code error;
      fs::remove_all(*directory, error);
      progress("cleared away what was left of '" + name + "', " +
                   (record->complete ? "which was to end with what had started it"
                                     : "whose start was broken off"),
               true);
    }
  }
}

// What must hold before a lab is started, or what is missing of it.
Result<void> check_place(const std::string& directory, const LabSource& source,
                         const std::string& name) {
  if (const auto record = read_record(directory)) {
    // The same text again completes what is missing; another text would be another lab.
    if (record->text != source.text) {
      return fail(ErrorCode::already_exists,
                  fmt::format("lab '{0}' is up, made from another text ({1}): `weft lab down {0}` "
                              "ends it",
                              name, record->file));
    }
    return {};
  }
  const auto alive = launch::ask_weftd(directory, {{"cmd", "counters"}});
  if (!alive && alive.error().code == ErrorCode::invalid_argument) {  // no network can be there
    return fail(alive.error().code,
                alive.error().message + "; set XDG_RUNTIME_DIR to a shorter one");
  }
  if (alive || alive.error().code != ErrorCode::not_found) {
    return fail(
        ErrorCode::already_exists,
        is_lab(directory)
            ? fmt::format("the record of lab '{0}' is damaged: `weft lab down {0}` ends it", name)
            : fmt::format("there is a network '{0}' that is no lab: `weft down {0}` ends it, or "
                          "give the lab another name",
                          name));
  }
  return {};
}

// The engine to use: of a lab that is there, the one that has its containers.
Result<ContainerEngine> engine_for(const std::string& directory, const std::string& asked,
                                   const LabFile& file) {
  const auto record = read_record(directory);
  const std::string wanted = !asked.empty() ? asked : record ? record->engine : file.engine;
  auto engine = ContainerEngine::find(wanted);
  if (engine && record && record->engine != engine->program()) {
    return fail(ErrorCode::already_exists,
                fmt::format("lab '{0}' is up with {1}: leave --engine out, or end it first "
                            "(`weft lab down {0}`)",
                            file.name, record->engine));
  }
  for (const LabNode& node : file.nodes) {
    if (!engine || engine->kind() != EngineKind::docker) {
      continue;
    }
    if (!node.rootfs.empty()) {
      return fail(ErrorCode::invalid_argument,
                  node.place + ": docker runs images only: 'rootfs' needs podman");
    }
    if (!node.interfaces.empty()) {
      return fail(ErrorCode::invalid_argument,
                  node.place +
                      ": docker gives interfaces no names: a pod with networks needs "
                      "podman");
    }
  }
  return engine;
}

// Starts a lab or completes it, for all of the functions below. If it fails, nothing stays of a lab
// that was not there before. With `while_up` the lab ends when that function has returned, and it
// must not be there before.
Result<LabRecord> bring_up(const LabFile& file, const LabSource& source,
                           const std::string& engine_name, const Progress& progress,
                           const std::function<Result<void>(const RunningLab&)>& while_up) {
  const launch::Interruptible interruptible;
  clear_broken_labs(progress);
  auto claim = launch::NetworkClaim::take(file.name, true);
  if (!claim) {
    return tl::unexpected(claim.error());
  }
  const LabIdentity identity{file.name, claim->directory()};
  const bool was_there = is_lab(identity.directory);
  if (auto free = check_place(identity.directory, source, file.name);
      !free || (was_there && while_up)) {
    claim->keep();
    return free ? fail(ErrorCode::already_exists,
                       fmt::format("lab '{0}' is up: `weft lab down {0}` ends it", file.name))
                : tl::unexpected(free.error());
  }
  const auto engine = engine_for(identity.directory, engine_name, file);
  if (!engine) {
    return tl::unexpected(engine.error());
  }
  LabRecord record{engine->program(), source.path, source.text, false, while_up != nullptr, {}, {}};
  for (const LabNode& node : file.nodes) {
    record.nodes.push_back(node.name);
  }
  const auto clear = [&] {
    // An error here cannot be told better than the one that led here.
    (void)clear_away(*engine, identity);
    claim->empty();
  };
  try {
    if (!was_there) {
      remove_files(identity.directory);  // of a network whose weftd was killed
    }
    auto done = was_there ? Result<void>{} : write_record(identity.directory, record);
    if (done) {
      done = LabStart(*engine, identity, file, progress).bring_up(record);
    }
    if (done) {
      record.complete = true;
      done = write_record(identity.directory, record);
    }
    if (done && while_up) {
      done = while_up({identity, record, *engine});
      clear();
    } else if (done) {
      claim->keep();
    } else if (!was_there) {
      clear();
    }
    return done ? Result<LabRecord>(std::move(record)) : tl::unexpected(done.error());
  } catch (const launch::Interrupted&) {
    if (!was_there) {
      progress("interrupted: clearing away", true);
      clear();
    }
    throw;
  }
}

}  // namespace

Result<LabRecord> start_lab(const LabFile& file, const LabSource& source, const std::string& engine,
                            const Progress& progress) {
  return bring_up(file, source, engine, progress, nullptr);
}

Result<LabRecord> start_lab(const LabSource& source, const std::string& engine,
                            const Progress& progress) {
  const auto file = read_lab(source.path, source.text, source.directory);
  return file ? start_lab(*file, source, engine, progress) : tl::unexpected(file.error());
}

Result<void> run_lab(const LabFile& file, const LabSource& source, const std::string& engine,
                     const Progress& progress,
                     const std::function<Result<void>(const RunningLab&)>& while_up) {
  return bring_up(file, source, engine, progress, while_up).map([](const LabRecord&) {});
}

Result<bool> end_lab(const std::string& name, const Progress& progress) {
  const launch::Interruptible interruptible;  // it goes on to its end
  const auto claim = launch::NetworkClaim::take(name, false);
  if (!claim) {
    return tl::unexpected(claim.error());
  }
  const auto record = read_record(claim->directory());
  if (!record && record.error().code == ErrorCode::not_found) {
    return fail(ErrorCode::not_found,
                fmt::format("network '{0}' is no lab: `weft down {0}` ends it", name));
  }
  // What there is of it is found by its label: a damaged record keeps nothing from ending.
  const auto engine = ContainerEngine::find(record ? record->engine : "");
  if (!engine) {
    return tl::unexpected(engine.error());
  }
  if (!record) {
    progress(fmt::format("{}: ending what {} has of it", record.error().message, engine->program()),
             true);
  } else {
    progress(fmt::format("ending {} nodes", record->nodes.size()), false);
  }
  const auto whole = clear_away(*engine, {name, claim->directory()});
  if (!whole) {
    return tl::unexpected(whole.error());
  }
  std::error_code error;
  // Last of all: the lock on it is what keeps others out.
  fs::remove_all(claim->directory(), error);
  return *whole && record && record->complete;
}

std::vector<std::string> labs_there() {
  std::vector<std::string> names;
  for (const std::string& name : launch::networks_there()) {
    if (const auto directory = launch::named_directory(name, false);
        directory && is_lab(*directory)) {
      names.push_back(name);
    }
  }
  return names;
}

Result<std::string> RunningLab::container(const std::string& node) const {
  if (std::ranges::find(record.nodes, node) == record.nodes.end()) {
    return fail(ErrorCode::invalid_argument,
                fmt::format("lab '{}' has no node '{}'; it has {}", identity.name, node,
                            fmt::join(record.nodes, ", ")));
  }
  return identity.container(node);
}

Result<std::vector<ContainerState>> RunningLab::states() const {
  const auto known = containers_of(engine, identity);
  if (!known) {
    return known;
  }
  std::vector<ContainerState> states;
  for (const std::string& node : record.nodes) {
    const auto found = std::ranges::find(*known, node, &ContainerState::node);
    // In the order of the file, whatever the engine's order is.
    states.push_back(found == known->end() ? ContainerState{"", node, "missing", 0} : *found);
  }
  return states;
}

Result<RunningLab> find_lab(const std::string& name) {
  const auto names = labs_there();
  if (name.empty() && names.size() != 1) {
    return fail(ErrorCode::invalid_argument,
                names.empty() ? "no lab is up: `weft lab up FILE.yaml` starts one"
                              : fmt::format("{} labs are up ({}): say which", names.size(),
                                            fmt::join(names, ", ")));
  }
  const std::string chosen = name.empty() ? names.front() : name;
  const auto directory = launch::named_directory(chosen, false);
  if (!directory) {
    return tl::unexpected(directory.error());
  }
  auto record = read_record(*directory);
  if (!record) {
    return record.error().code == ErrorCode::not_found
               ? fail(ErrorCode::not_found, "network '" + chosen + "' is no lab")
               : tl::unexpected(record.error());
  }
  const auto engine = ContainerEngine::find(record->engine);
  if (!engine) {
    return tl::unexpected(engine.error());
  }
  return RunningLab{{chosen, *directory}, std::move(*record), *engine};
}

}  // namespace weft::labs
