// Owns what counts as proof of where a datagram comes from: tried by an attacker that sees
// everything that passes, and has seen everything that ever did.
#include "srd/io/tunnel_session.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "srd/base/rng.hpp"

namespace weft::srd {
namespace {

using Datagram = std::vector<std::byte>;
using Verdict = TunnelSession::Verdict;

JoinKey key(unsigned number) {
  JoinKey key;
  key.bytes.fill(static_cast<std::byte>(number));
  return key;
}

// One end, with what it has received.
struct End {
  explicit End(std::uint64_t seed, unsigned secret = 1) : session(key(secret), seed) {}

  [[nodiscard]] std::optional<Datagram> greeting(TimePoint now) {
    TunnelSession::Header header;
    if (!session.next_greeting(now, header)) {
      return std::nullopt;
    }
    return Datagram(header.begin(), header.end());
  }
  [[nodiscard]] Datagram frame(const std::string& text) {
    const auto bytes = std::as_bytes(std::span(text));
    const std::array<std::span<const std::byte>, 2> pieces{bytes.first(text.size() / 2),
                                                           bytes.subspan(text.size() / 2)};
    const auto header = session.seal(pieces);
    Datagram datagram(header.begin(), header.end());
    datagram.insert(datagram.end(), bytes.begin(), bytes.end());
    return datagram;
  }
  Verdict take(const Datagram& datagram) {
    std::span<const std::byte> inside;
    const Verdict verdict = session.open(datagram, inside);
    if (verdict == Verdict::frame) {
      got.emplace_back(reinterpret_cast<const char*>(inside.data()), inside.size());
    }
    return verdict;
  }

  TunnelSession session;
  std::vector<std::string> got;
};

// Carries datagrams between two ends, and keeps a copy of each: what an attacker may play again.
struct Wire {
  // Both say what they have to say until neither has anything left.
  void greet(End& a, End& b) {
    for (int round = 0; round < 20; ++round) {
      now += std::chrono::milliseconds{10};
      for (auto [from, to] : {std::pair(&a, &b), std::pair(&b, &a)}) {
        while (const auto greeting = from->greeting(now)) {
          seen.push_back(*greeting);
          (void)to->take(*greeting);
        }
      }
    }
  }
  // Whether a frame passes, perhaps after the ends have noticed that something is wrong.
  bool passes(End& from, End& to, const std::string& text) {
    for (int attempt = 0; attempt < 3; ++attempt) {
      if (from.session.established()) {
        seen.push_back(from.frame(text));
        if (to.take(seen.back()) == Verdict::frame) {
          return to.got.back() == text;
        }
      }
      greet(from, to);
    }
    return false;
  }

  TimePoint now{};
  std::vector<Datagram> seen;  // everything that ever passed
};

TEST(TunnelSession, FramesPassOnceBothHaveShownThemselves) {
  End a(100);
  End b(200);
  Wire wire;
  EXPECT_FALSE(a.session.established());
  EXPECT_EQ(b.take(a.frame("too soon")), Verdict::refused);
  wire.greet(a, b);
  EXPECT_TRUE(a.session.established() && b.session.established());
  EXPECT_EQ(b.take(a.frame("one")), Verdict::frame);
  EXPECT_EQ(a.take(b.frame("two")), Verdict::frame);
  EXPECT_EQ(b.got, std::vector<std::string>{"one"});
  EXPECT_EQ(a.got, std::vector<std::string>{"two"});
  EXPECT_FALSE(a.greeting(wire.now + std::chrono::hours{1})) << "nothing is left to say";
}

// Every single bit of a greeting and of a frame, and every shorter length. The untouched frame is
// taken in the end: the attempts have changed nothing.
TEST(TunnelSession, AnyChangedBitIsRefused) {
  End a(100);
  End b(200);
  Wire wire;
  for (int i = 0; i < 2; ++i) {
    const Datagram greeting = *a.greeting(wire.now);
    for (std::size_t bit = 0; bit < 8 * greeting.size(); ++bit) {
      Datagram forged = greeting;
      forged[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
      EXPECT_EQ(b.take(forged), Verdict::refused) << bit;
    }
  }
  a.session.want_challenge();
  wire.greet(a, b);
  const Datagram frame = a.frame("some words that count");
  for (std::size_t bit = 0; bit < 8 * frame.size(); ++bit) {
    Datagram forged = frame;
    forged[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    EXPECT_EQ(b.take(forged), Verdict::refused) << bit;
  }
  for (std::size_t size = 0; size < frame.size(); ++size) {
    EXPECT_EQ(b.take(Datagram(frame.begin(), frame.begin() + static_cast<std::ptrdiff_t>(size))),
              Verdict::refused);
  }
  EXPECT_EQ(b.take(frame), Verdict::frame);
}

TEST(TunnelSession, WhoHasAnotherKeyIsNotHeard) {
  End a(100);
  End b(200, 2);
  Wire wire;
  wire.greet(a, b);
  EXPECT_FALSE(a.session.established() || b.session.established());
}

// An end that believed its own words would take its own frames for the other one's.
TEST(TunnelSession, WhatOneSaidItselfIsNoAnswer) {
  End a(100);
  End b(200);
  Wire wire;
  for (int round = 0; round < 10; ++round) {
    a.session.want_challenge();
    wire.now += std::chrono::milliseconds{10};
    while (const auto greeting = a.greeting(wire.now)) {
      (void)a.take(*greeting);
    }
    EXPECT_FALSE(a.session.established());
  }
  a.session.want_challenge();
  wire.greet(a, b);
  ASSERT_TRUE(a.session.established());
  EXPECT_EQ(a.take(a.frame("echo")), Verdict::refused);
  // The answer that b gets to its question is none to a's.
  std::vector<Datagram> said = wire.seen;
  for (const Datagram& datagram : said) {
    (void)a.take(datagram);
    wire.now += std::chrono::milliseconds{10};
    while (const auto greeting = a.greeting(wire.now)) {
      (void)a.take(*greeting);
    }
  }
  EXPECT_NE(a.take(a.frame("echo")), Verdict::frame);
  EXPECT_TRUE(wire.passes(a, b, "still"));
}

// A thousand frames in random order are within the window in which late frames are accepted; each
// is taken once.
TEST(TunnelSession, EachFrameIsTakenOnceInWhateverOrder) {
  Rng rng(3);
  for (int round = 0; round < 20; ++round) {
    End a(100);
    End b(200);
    Wire wire;
    wire.greet(a, b);
    std::vector<Datagram> frames;
    for (int i = 0; i < 1000; ++i) {
      frames.push_back(a.frame(std::to_string(i)));
    }
    for (std::size_t i = frames.size(); i > 1; --i) {
      std::swap(frames[i - 1], frames[rng.below(static_cast<std::uint32_t>(i))]);
    }
    for (const Datagram& frame : frames) {
      EXPECT_EQ(b.take(frame), Verdict::frame);
      EXPECT_EQ(b.take(frame), Verdict::refused);
    }
    EXPECT_EQ(b.got.size(), 1000U);
    for (const Datagram& frame : frames) {
      EXPECT_EQ(b.take(frame), Verdict::refused);
    }
  }
}

// Frames that are under way while the sender takes another challenge are not lost for that.
TEST(TunnelSession, AnotherChallengeLosesNoFrame) {
  End a(100);
  End b(200);
  Wire wire;
  wire.greet(a, b);
  std::vector<Datagram> frames;
  for (int i = 0; i < 50; ++i) {
    frames.push_back(a.frame(std::to_string(i)));
  }
  EXPECT_EQ(b.take(frames[0]), Verdict::frame);
  a.session.want_challenge();
  wire.greet(a, b);
  EXPECT_EQ(b.take(a.frame("under the new one")), Verdict::frame);
  for (std::size_t i = 1; i < frames.size(); ++i) {
    EXPECT_EQ(b.take(frames[i]), Verdict::frame);
    EXPECT_EQ(b.take(frames[i]), Verdict::refused);
  }
  EXPECT_FALSE(b.greeting(wire.now + std::chrono::hours{1}));
}

// The window remembers 4096 frames: what is older cannot be told from a replay and is refused.
TEST(TunnelSession, WhatIsTooLateIsLost) {
  End a(100);
  End b(200);
  Wire wire;
  wire.greet(a, b);
  const Datagram late = a.frame("late");
  const Datagram almost = a.frame("almost");
  for (int i = 0; i < 4096; ++i) {
    const Datagram frame = a.frame(std::to_string(i));
    if (i % 3 == 0) {
      EXPECT_EQ(b.take(frame), Verdict::frame);
    }
    if (i == 4093) {
      EXPECT_EQ(b.take(frame), i % 3 == 0 ? Verdict::refused : Verdict::frame);
      EXPECT_EQ(b.take(almost), Verdict::frame);
    }
  }
  EXPECT_EQ(b.take(late), Verdict::refused);
}

// Whichever end begins anew, and however often: nothing that was ever sent is taken a second time.
TEST(TunnelSession, NothingRecordedIsTakenAgainAfterARestart) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    Wire wire;
    std::uint64_t seed_of_end = 1000;
    std::array<std::optional<End>, 2> ends{End(seed_of_end++), End(seed_of_end++)};
    std::uint64_t taken = 0;
    std::uint64_t sent = 0;
    const auto replay = [&](std::size_t to) {
      for (std::size_t i = 0; i < wire.seen.size(); ++i) {
        EXPECT_NE(ends[to]->take(wire.seen[i]), Verdict::frame);
      }
    };
    for (int round = 0; round < 12; ++round) {
      const std::size_t who = rng.below(2);
      ends[who].emplace(seed_of_end++);
      if (rng.chance(0.5)) {
        replay(who);
        replay(1 - who);
      }
      for (int i = 0; i < 5; ++i) {
        const std::size_t from = rng.below(2);
        const std::string text = std::to_string(++sent);
        EXPECT_TRUE(wire.passes(*ends[from], *ends[1 - from], text)) << text;
        ++taken;
      }
      replay(0);
      replay(1);
      // That has disturbed nothing.
      EXPECT_TRUE(wire.passes(*ends[0], *ends[1], "still"));
      EXPECT_TRUE(wire.passes(*ends[1], *ends[0], "still"));
    }
    EXPECT_EQ(taken, sent);
  }
}

// Half of the greetings are lost: the ends must not wait for each other.
TEST(TunnelSession, LostGreetingsAreSaidAgain) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    Rng rng(seed);
    End a(100);
    End b(200);
    TimePoint now{};
    int rounds = 0;
    for (; rounds < 500 && b.got.empty(); ++rounds) {
      now += std::chrono::milliseconds{2};
      if (!a.session.established()) {
        a.session.want_challenge();  // as an end does that has a frame to send
      }
      for (auto [from, to] : {std::pair(&a, &b), std::pair(&b, &a)}) {
        while (const auto greeting = from->greeting(now)) {
          if (rng.chance(0.5)) {
            (void)to->take(*greeting);
          }
        }
      }
      if (a.session.established() && rng.chance(0.5)) {
        (void)b.take(a.frame("x"));
      }
    }
    EXPECT_LT(rounds, 200) << seed;
  }
}

// If each bad datagram were answered, a stranger could make two tunnels talk without end.
TEST(TunnelSession, NoiseIsAnsweredSeldomAndChangesNothing) {
  End a(100);
  End b(200);
  Wire wire;
  wire.greet(a, b);
  Rng rng(9);
  int greetings = 0;
  const Datagram good = a.frame("good");
  for (int i = 0; i < 20'000; ++i) {
    Datagram noise(rng.below(120));
    for (auto& byte : noise) {
      byte = static_cast<std::byte>(rng.next());
    }
    if (noise.size() > 8 && rng.chance(0.5)) {
      std::copy_n(good.begin(), 8, noise.begin());
    }
    EXPECT_EQ(b.take(noise), Verdict::refused);
    wire.now += std::chrono::microseconds{1};
    greetings += b.greeting(wire.now) ? 1 : 0;
  }
  EXPECT_LE(greetings, 5) << "in 20 ms";
  EXPECT_EQ(b.take(good), Verdict::frame);
}

}  // namespace
}  // namespace weft::srd
