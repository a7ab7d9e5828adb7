// Tests of profiles: what they may say, and how mistakes are explained.
//
// A profile (one that comes with weft, or the user's file) says all abilities of a device, each
// with a mark of how it is known. A field that is missing is a mistake, because a default would be
// an assumption that nobody made.
#include "emu/devices/profiles.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "emu/devices/efa/abilities.hpp"
#include "emu/devices/efa/personality.hpp"

namespace weft::devices {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const Personality& kEfa = efa::kPersonality;

// Of a profile that comes with weft.
efa::Abilities abilities_of(const std::string& profile) {
  return efa::abilities_from_text(load_profile(kEfa, profile)->abilities).value();
}

TEST(Profiles, AllAreReadableAndDiffer) {
  ASSERT_GE(profile_names(kEfa).size(), 4U);
  for (const std::string& name : profile_names(kEfa)) {
    const auto profile = load_profile(kEfa, name);
    ASSERT_TRUE(profile) << profile.error().message;
    EXPECT_EQ(profile->name, name);
    const auto nic = efa::abilities_from_text(profile->abilities);
    ASSERT_TRUE(nic) << nic.error().message;
    // Descriptors are counted in 16 bits, and 0xefa2 without RDMA read makes libfabric abort.
    EXPECT_LE(nic->max_rq_wr * nic->max_rq_sge, 32768U);
    EXPECT_TRUE(nic->rdma_read || nic->part_id < 0xEFA2);
  }
  EXPECT_FALSE(abilities_of("base").rdma_read);
  EXPECT_TRUE(abilities_of("read").rdma_read);
  EXPECT_FALSE(abilities_of("read").rdma_write);
  EXPECT_TRUE(abilities_of("full").unsolicited_write);
  EXPECT_GT(abilities_of("reorder").forced_reorder, 0U);
}

// Reported of two instance types, not documented: which id goes with completion counters.
TEST(Profiles, OfReportedInstancesSayWhatWasReported) {
  const auto p5 = abilities_of("p5");
  EXPECT_EQ(p5.part_id, 0xEFA1U);
  EXPECT_FALSE(p5.completion_counters);
  EXPECT_TRUE(p5.rdma_read && p5.rdma_write && p5.unsolicited_write && p5.cq_with_sgid);
  const auto newest = abilities_of("newest");
  EXPECT_EQ(newest.part_id, 0xEFA2U);
  EXPECT_TRUE(newest.completion_counters && newest.request_id_64);
}

// A whole profile of good values, but for one field: the line of YAML instead of it, or nothing.
std::string profile_with(const std::string& field, const std::string& line) {
  std::string text = "profile: x\nfields:\n";
  const std::string all = "\n" + efa::to_text(efa::Abilities{});
  for (const std::string& name : kEfa.profile_fields()) {
    const std::size_t at = all.find("\n" + name + " ") + 1;
    const std::string value =
        all.substr(at + name.size() + 1, all.find('\n', at) - at - name.size() - 1);
    text += "  ";
    text += name == field ? line : name + ": {value: " + value + ", mark: fact}";
    text += "\n";
  }
  return text;
}
// A good profile with that value in one field.
std::string with_value(const std::string& field, const std::string& value) {
  return profile_with(field, field + ": {value: " + value + ", mark: assumption}");
}
// What is said about a profile that must be refused.
std::string mistake(const std::string& text) {
  const auto profile = parse_profile(kEfa, text, "my.yaml");
  EXPECT_FALSE(profile) << text;
  return profile ? "" : profile.error().message;
}

TEST(Profiles, MistakesAreExplained) {
  EXPECT_NE(load_profile(kEfa, "nosuch").error().message.find("readwrite"), std::string::npos);
  EXPECT_FALSE(load_profile(kEfa, "/nonexistent/x.yaml"));
  EXPECT_FALSE(parse_profile(kEfa, "profile: x\n", "x"));
  EXPECT_FALSE(parse_profile(kEfa, ": : {", "x"));
  ASSERT_TRUE(parse_profile(kEfa, profile_with("", ""), "x"));
  EXPECT_THAT(parse_profile(kEfa, with_value("mtu", "0x400"), "x")->abilities,
              HasSubstr("\nmtu 1024\n"));
  EXPECT_THAT(mistake("kind: ufo\n" + profile_with("", "")), HasSubstr("known are efa"));
  EXPECT_TRUE(parse_profile(kEfa, "kind: efa\n" + profile_with("", ""), "x"));
  // Line 13 is where that field stands in the text above.
  EXPECT_THAT(mistake(profile_with("mtu", "mtu: 9")),
              AllOf(HasSubstr("my.yaml:13: "), HasSubstr("field mtu")));
  EXPECT_THAT(mistake(profile_with("mtu", "mtu: {value: 900}")), HasSubstr("mark"));
  EXPECT_THAT(mistake(profile_with("mtu", "mtu: {mark: fact}")), HasSubstr("value"));
  EXPECT_THAT(mistake(profile_with("mtu", "mtu: {value: 900, mark: guess}")), HasSubstr("mark"));
  EXPECT_THAT(mistake(with_value("mtu", "many")), AllOf(HasSubstr("field mtu"), HasSubstr("many")));
  EXPECT_THAT(mistake(with_value("mtu", "0xfg")), HasSubstr("0xfg"));
  EXPECT_THAT(mistake(with_value("forced_reorder", "0x10000000000000000")),
              AllOf(HasSubstr("field forced_reorder"), HasSubstr("32 bits")));
  EXPECT_THAT(mistake(with_value("rdma_read", "2")), HasSubstr("field rdma_read"));
  EXPECT_THAT(mistake(with_value("mtu", "900") + "  warp: {value: 9, mark: fact}\n"),
              AllOf(HasSubstr("field warp"), HasSubstr("max_rq_sge")));
  EXPECT_THAT(mistake(with_value("mtu", "900") + "  mtu: {value: 800, mark: fact}\n"),
              AllOf(HasSubstr("field mtu"), HasSubstr("twice")));
  EXPECT_THAT(mistake(with_value("mtu", "900") + "  address: {value: 10.0.0.1, mark: fact}\n"),
              HasSubstr("field address"));
}

// Each field left out once.
TEST(Profiles, SayEverything) {
  for (const std::string& field : kEfa.profile_fields()) {
    EXPECT_THAT(mistake(profile_with(field, "")), AllOf(HasSubstr("missing"), HasSubstr(field)));
  }
}

// The last good values of a field at both ends, and the first bad ones.
struct Bound {
  const char* field;
  std::vector<const char*> allowed;
  std::vector<const char*> refused;
};
void PrintTo(const Bound& bound, std::ostream* out) { *out << bound.field; }
class ProfileBounds : public ::testing::TestWithParam<Bound> {};

TEST_P(ProfileBounds, AreCheckedWhenItIsLoaded) {
  const Bound& bound = GetParam();
  for (const char* const value : bound.allowed) {
    const auto profile = parse_profile(kEfa, with_value(bound.field, value), "x");
    EXPECT_TRUE(profile) << profile.error().message;
  }
  for (const char* const value : bound.refused) {
    EXPECT_THAT(mistake(with_value(bound.field, value)),
                AllOf(HasSubstr("my.yaml"), HasSubstr(bound.field), HasSubstr("allowed")));
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, ProfileBounds,
    ::testing::Values(Bound{"part_id", {"0xefa0", "0xefa1", "0xefa4"}, {"0xef9f", "0xefa5", "0"}},
                      Bound{"mtu", {"256", "8928"}, {"255", "8929"}},
                      Bound{"max_rdma_size", {"1", "0x40000000"}, {"0", "0x40000001"}},
                      Bound{"inline_size", {"0", "32"}, {"33", "4294967295"}},
                      Bound{"inline_size_wide", {"0", "32", "80"}, {"81", "31"}},
                      Bound{"max_sq_wr", {"1", "4096", "32768"}, {"0", "3000", "65536"}},
                      Bound{"max_rq_wr", {"1", "10922"}, {"0", "10923", "32768"}},
                      Bound{"max_sq_sge", {"1", "2"}, {"0", "3"}},
                      Bound{"max_rq_sge", {"1", "2", "3"}, {"0", "4"}},
                      Bound{"max_qp", {"1", "100", "256"}, {"0", "257"}},
                      Bound{"max_cq", {"1", "65535"}, {"0", "65536"}},
                      Bound{"max_cqe", {"1", "32768"}, {"0", "32769"}},
                      Bound{"max_mr", {"1", "65536"}, {"0", "65537"}},
                      Bound{"max_pd", {"1", "65535"}, {"0", "65536"}},
                      Bound{"max_ah", {"1", "65535"}, {"0", "65536"}},
                      Bound{"paths", {"1", "256"}, {"0", "257"}},
                      Bound{"forced_reorder", {"0", "1024"}, {"1025"}},
                      Bound{"gbps", {"1", "800"}, {"0"}},
                      Bound{"rdma_write", {"true"}, {"false"}}),  // unsolicited writes need it
    [](const auto& test) { return std::string(test.param.field); });

// libfabric takes reads for granted from 0xefa2 on, and aborts.
TEST(Profiles, NewIdsCanRead) {
  EXPECT_TRUE(parse_profile(kEfa, with_value("rdma_read", "false"), "x"));  // 0xefa1
  std::string text = with_value("rdma_read", "false");
  text.replace(text.find("part_id: {value: 61345"), 22, "part_id: {value: 0xefa2");
  EXPECT_THAT(mistake(text), HasSubstr("rdma_read"));
}

}  // namespace
}  // namespace weft::devices
