// Owns the proof that whatever happens to one end, at whatever moment, the other one comes to an
// end.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "tests/unit/integration/nccl/core_lab.hpp"

namespace weft::testing {
namespace {

using nccl::Buffer;
using nccl::Outcome;
using nccl::Request;

constexpr std::size_t kBytes = 40'000;  // dozens of packets
constexpr int kMessages = 4;

enum class Stage : std::uint8_t { connecting, transferring, ended, failed };

// What the two ends of one connection do as NCCL's threads do it: connect, transfer, close.
template <class C>
struct End {
  Stage stage = Stage::connecting;
  C* comm = nullptr;
  nccl::CommRegion* region = nullptr;
  std::vector<std::byte> memory = std::vector<std::byte>(kBytes);
  std::vector<Request*> requests;
  int posted = 0;
  int done = 0;
  bool wrong = false;

  [[nodiscard]] bool over() const { return stage == Stage::ended || stage == Stage::failed; }
  [[nodiscard]] std::size_t size(int message) const {
    return message % 2 == 0 ? kBytes : static_cast<std::size_t>(message - 1);
  }

  void connected(nccl::Core& core, Outcome outcome) {
    if (outcome != Outcome::ok) {
      stage = Stage::failed;
    } else if (comm != nullptr) {
      region = *core.register_memory(*comm, memory.data(), memory.size());
      stage = Stage::transferring;
    }
  }
  template <class Post>
  void transfer(nccl::Core& core, Post&& post) {
    Request* request = nullptr;
    if (requests.empty() && posted < kMessages) {
      if (post(posted, request) != Outcome::ok) {
        return close(core, Stage::failed);
      }
      if (request != nullptr) {
        requests.push_back(request);
        ++posted;
      }
    }
    if (!requests.empty()) {
      if (const auto end = ended(requests.front())) {
        requests.clear();
        if (*end != Outcome::ok) {
          return close(core, Stage::failed);
        }
        ++done;
      }
    }
    if (done == kMessages) {
      close(core, Stage::ended);
    }
  }
  void close(nccl::Core& core, Stage how) {
    core.close(*comm);
    stage = how;
  }
};

// Both ends of one connection. A turn makes the one call that is due; between turns the test may
// kill an end, or close it.
class Story {
 public:
  explicit Story(NcclLab& lab) : lab_(lab), listener_(lab.core(1).listen(handle_)) {
    fill_bytes(sends_.memory, 3);
  }
  void send_turn() {
    nccl::Core& core = lab_.core(0);
    if (sends_.stage == Stage::connecting) {
      sends_.connected(core, core.connect(handle_, sends_.comm));
    } else if (sends_.stage == Stage::transferring) {
      sends_.transfer(core, [&](int message, Request*& request) {
        return core.send(*sends_.comm, sends_.memory.data(), sends_.size(message), 5, sends_.region,
                         request);
      });
    }
  }
  void receive_turn() {
    nccl::Core& core = lab_.core(1);
    if (receives_.stage == Stage::connecting) {
      receives_.connected(core, core.accept(listener_, receives_.comm));
    } else if (receives_.stage == Stage::transferring) {
      const int before = receives_.done;
      receives_.transfer(core, [&](int, Request*& request) {
        std::ranges::fill(receives_.memory, std::byte{0});
        const Buffer buffer{receives_.memory.data(), kBytes, 5, receives_.region};
        return core.receive(*receives_.comm, {&buffer, 1}, false, request);
      });
      if (receives_.done != before) {
        const auto got = std::span{receives_.memory}.first(receives_.size(before));
        EXPECT_TRUE(has_bytes(got, 3)) << "message " << before;
      }
    }
  }
  [[nodiscard]] const End<nccl::SendComm>& sends() const { return sends_; }
  [[nodiscard]] const End<nccl::ReceiveComm>& receives() const { return receives_; }

 private:
  NcclLab& lab_;
  nccl::ListenHandle handle_;
  std::uint32_t listener_;
  End<nccl::SendComm> sends_;
  End<nccl::ReceiveComm> receives_;
};

NcclLabConfig config_of(std::uint64_t seed) {
  NcclLabConfig config = nccl_lab_config();
  config.seed = seed;
  config.engine.peer_timeout = 10s;
  config.link.reorder = 0.1;
  config.link.loss = seed % 2 == 0 ? 0.02 : 0;
  return config;
}

// How long the whole story takes when nothing happens.
Duration undisturbed(std::uint64_t seed) {
  NcclLab lab(2, config_of(seed));
  Story story(lab);
  const TimePoint begin = lab.world().now();
  EXPECT_TRUE(lab.run_until([&] {
    story.send_turn();
    story.receive_turn();
    return story.sends().over() && story.receives().over();
  }));
  EXPECT_EQ(story.sends().stage, Stage::ended);
  EXPECT_EQ(story.receives().stage, Stage::ended);
  return lab.world().now() - begin;
}

class Moments : public ::testing::TestWithParam<std::uint64_t> {};

// The end that lives must come to an end within the time-out of 10 s and some seconds more.
TEST_P(Moments, DeathOfEitherEndIsFoundOut) {
  const Duration whole = undisturbed(GetParam());
  for (const std::uint32_t victim : {0U, 1U}) {
    for (int moment = 0; moment < 40; ++moment) {
      for (const bool comes_back : {false, true}) {
        SCOPED_TRACE("NIC " + std::to_string(victim) + ", moment " + std::to_string(moment) +
                     (comes_back ? ", and comes back" : ""));
        NcclLab lab(2, config_of(GetParam()));
        Story story(lab);
        // In forty steps from the first call to the last, whatever is just under way then.
        const TimePoint death = lab.world().now() + whole * moment / 40;
        (void)lab.run_until([&] {
          story.send_turn();
          story.receive_turn();
          return lab.world().now() >= death;
        });
        comes_back ? lab.restart(victim) : lab.crash(victim);
        // An end that was not even asked to connect waits, as a listener does.
        const bool stranger = victim == 0 && story.receives().stage == Stage::connecting;
        const bool over = lab.run_until(
            [&] {
              victim == 0 ? story.receive_turn() : story.send_turn();
              return victim == 0 ? story.receives().over() : story.sends().over();
            },
            15s);
        EXPECT_TRUE(over || stranger);
      }
    }
  }
}

// Every message still arrives: standing still, as in a debugger or on a full machine, costs time
// and nothing else.
TEST_P(Moments, EndThatStandsStillForSecondsDisturbsNothing) {
  const Duration whole = undisturbed(GetParam());
  for (const std::uint32_t victim : {0U, 1U}) {
    for (int moment = 0; moment < 20; ++moment) {
      SCOPED_TRACE("NIC " + std::to_string(victim) + ", moment " + std::to_string(moment));
      NcclLab lab(2, config_of(GetParam()));
      Story story(lab);
      const TimePoint pause = lab.world().now() + whole * moment / 20;
      (void)lab.run_until([&] {
        story.send_turn();
        story.receive_turn();
        return lab.world().now() >= pause;
      });
      lab.world().pause(victim);
      // Less than the ten seconds of config_of(): late, not dead.
      const TimePoint resume = lab.world().now() + 4s;
      (void)lab.run_until([&] {
        victim == 0 ? story.receive_turn() : story.send_turn();
        return lab.world().now() >= resume;
      });
      lab.world().resume(victim);
      EXPECT_TRUE(lab.run_until(
          [&] {
            story.send_turn();
            story.receive_turn();
            return story.sends().over() && story.receives().over();
          },
          20s));
      EXPECT_EQ(story.sends().stage, Stage::ended);
      EXPECT_EQ(story.receives().stage, Stage::ended);
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Seeds, Moments, ::testing::Range<std::uint64_t>(1, 4));

}  // namespace
}  // namespace weft::testing
