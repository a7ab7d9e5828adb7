// Owns the cross-check of our frames by a decoder that knows nothing of us. Skips without tshark.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "srd/net/envelope.hpp"
#include "srd/wire/srd_codec.hpp"
#include "tests/unit/srd/net/frames.hpp"

namespace weft::srd::wire {
namespace {

using net::test::address4;
using net::test::address6;
using net::test::Bytes;
using net::test::frame_of;

void append(std::string& out, std::uint32_t value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

// The classic capture format, in this machine's byte order.
std::string capture_of(const std::vector<Bytes>& frames) {
  std::string out;
  // Its magic number, version 2.4, no time zone, no accuracy, the longest frame, and Ethernet.
  for (const std::uint32_t word : {0xA1B2C3D4U, 0x00040002U, 0U, 0U, 65535U, 1U}) {
    append(out, word);
  }
  for (const Bytes& frame : frames) {
    append(out, 0);
    append(out, 0);
    append(out, static_cast<std::uint32_t>(frame.size()));
    append(out, static_cast<std::uint32_t>(frame.size()));
    out.append(reinterpret_cast<const char*>(frame.data()), frame.size());
  }
  return out;
}

class TempFile {
 public:
  explicit TempFile(const std::string& content) : path_(testing::TempDir() + "weft_wire_XXXXXX") {
    const int fd = mkstemp(path_.data());
    EXPECT_GE(fd, 0);
    EXPECT_EQ(write(fd, content.data(), content.size()), static_cast<ssize_t>(content.size()));
    close(fd);
  }
  ~TempFile() { unlink(path_.c_str()); }
  TempFile(const TempFile&) = delete;
  TempFile& operator=(const TempFile&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::string output_of(const std::string& command) {
  std::FILE* const pipe = popen(command.c_str(), "r");
  EXPECT_NE(pipe, nullptr);
  std::string text;
  std::array<char, 4096> piece;
  for (std::size_t count; (count = std::fread(piece.data(), 1, piece.size(), pipe)) > 0;) {
    text.append(piece.data(), count);
  }
  EXPECT_EQ(pclose(pipe), 0) << command << '\n' << text;
  return text;
}

std::string tshark(const std::vector<Bytes>& frames, const std::string& fields) {
  const TempFile file{capture_of(frames)};
  return output_of("tshark -n -o ip.check_checksum:TRUE -r '" + file.path() +
                   "' -T fields -E separator=, " + fields + " 2>&1 | grep -v '^Running as user'");
}

TEST(Tshark, ReadsOurEnvelopes) {
  if (std::system("tshark --version > /dev/null 2>&1") != 0) {
    GTEST_SKIP()
        << "tshark is not installed: our envelopes are NOT cross-checked by another decoder";
  }
  const Address four = address4(10, 1, 2, 3);
  const Address six = address6("fd005eed000000000000000000000001");
  Bytes trimmed = frame_of(four, address4(10, 1, 2, 4), 77, Ecn::congested, kDscpData, Bytes(500));
  trimmed.resize(SrdCodec::trim(trimmed));
  const std::vector<Bytes> frames{
      frame_of(four, address4(10, 1, 2, 4), 5, Ecn::capable_0, kDscpData, Bytes(100)),
      trimmed,
      frame_of(six, address6("fd005eed0000000000000000ffff0002"), 255, Ecn::not_capable,
               kDscpControl, Bytes(32)),
  };
  // ip.checksum.status 1: good. _ws.expert would name anything that the decoder finds odd.
  EXPECT_EQ(tshark(frames,
                   "-e eth.src -e ip.src -e ip.dst -e ip.dsfield.dscp -e ip.dsfield.ecn -e ip.len "
                   "-e ip.checksum.status -e ip.ttl -e udp.srcport -e udp.dstport -e udp.length -e "
                   "_ws.malformed"),
            "02:00:0a:01:02:03,10.1.2.3,10.1.2.4,0,2,128,1,64,61445,61184,108,\n"
            "02:00:0a:01:02:03,10.1.2.3,10.1.2.4,43,3,92,1,64,61517,61184,72,\n"
            "06:a3:0f:4e:27:7d,,,,,,,,61695,61184,40,\n");
  EXPECT_EQ(tshark({frames[2]},
                   "-e ipv6.src -e ipv6.dst -e ipv6.tclass.dscp -e ipv6.tclass.ecn -e ipv6.flow -e "
                   "ipv6.plen "
                   "-e ipv6.hlim -e data.len"),
            "fd00:5eed::1,fd00:5eed::ffff:2,47,0,0x00f0ff,40,64,32\n");
}

}  // namespace
}  // namespace weft::srd::wire
