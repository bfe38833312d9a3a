// All choices are measured in as few rounds as the rarest shape allows.
#include "tracer/choice_rounds.h"

#include <gtest/gtest.h>

#include <set>

namespace superneurons {
namespace {

Op op(const std::string& kind, double size, std::size_t choices) {
  Op made;
  made.name = kind;
  made.kind = kind;
  made.attributes = {{"size", size}};
  for (std::size_t i = 0; i < choices; ++i)
    made.choices.push_back({.algorithm = std::to_string(i)});
  return made;
}

/// Five convolutions of one shape with seven choices, one of another, and one op without a choice.
Trace trace() {
  Trace made;
  for (int i = 0; i < 5; ++i) made.ops.push_back(op("conv", 1, 7));
  made.ops.push_back(op("conv", 2, 3));
  made.ops.push_back(op("relu", 1, 1));
  return made;
}

TEST(ChoiceRounds, MembersOfAGroupShareTheMeasuring) {
  const Trace of = trace();
  ChoiceRounds rounds(of);
  EXPECT_EQ(rounds.left(), 3U);  // of the second shape; the first needs two
  std::vector<std::set<std::uint32_t>> seen(of.ops.size());
  std::set<std::uint32_t> of_group;
  while (rounds.left() > 0) {
    const auto choice_of = rounds.next();
    ASSERT_EQ(choice_of.size(), of.ops.size());
    for (std::uint32_t i = 0; i < choice_of.size(); ++i) {
      ASSERT_LT(choice_of[i], of.ops[i].choices.size());
      seen[i].insert(choice_of[i]);
      if (i < 5) of_group.insert(choice_of[i]);
      rounds.add({i}, choice_of[i], 10_ns);
    }
  }
  EXPECT_EQ(of_group.size(), 7U);
  EXPECT_EQ(seen[5].size(), 3U);
}

TEST(ChoiceRounds, StoreTheMedianOfTheGroupAndTheFastestDeterministicChoice) {
  Trace of = trace();
  for (int i = 0; i < 5; ++i) of.ops[i].choices[0].deterministic = false;
  ChoiceRounds rounds(of);
  for (std::uint32_t i = 0; i < 5; ++i)
    for (std::uint32_t choice = 0; choice < 7; ++choice)
      rounds.add({i}, choice, {100 * (choice + 1) + i});
  ASSERT_TRUE(rounds.store(of));
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(of.ops[i].recorded, 1U);  // the first is faster and repeats nothing
    EXPECT_EQ(of.ops[i].choices[0].ns, 102_ns);
    EXPECT_EQ(of.ops[i].choices[6].ns, 702_ns);
  }
  EXPECT_EQ(of.ops[6].choices[0].ns, 0_ns);  // never seen
}

TEST(ChoiceRounds, DropWhatFailed) {
  Trace of = trace();
  ChoiceRounds rounds(of);
  for (std::uint32_t choice = 0; choice < 3; ++choice) rounds.add({5}, choice, {choice + 1});
  rounds.drop({5}, 0);
  rounds.drop({3}, 6);
  ASSERT_TRUE(rounds.store(of));
  ASSERT_EQ(of.ops[5].choices.size(), 2U);
  EXPECT_EQ(of.ops[5].choices[0].algorithm, "1");
  EXPECT_EQ(of.ops[5].recorded, 0U);
  EXPECT_EQ(of.ops[0].choices.size(), 6U);  // of the whole group
  Trace none = trace();
  ChoiceRounds failing(none);
  for (std::uint32_t choice = 0; choice < 3; ++choice) failing.drop({5}, choice);
  EXPECT_FALSE(failing.store(none));
}

TEST(ChoiceRounds, GroupsThatAreDoneTakeTheFastest) {
  ChoiceRounds rounds(trace());
  for (int round = 0; round < 2; ++round) {
    const auto choice_of = rounds.next();
    for (std::uint32_t i = 0; i < choice_of.size(); ++i)
      rounds.add({i}, choice_of[i], {choice_of[i] == 4 ? 5 : 50});
  }
  const auto last = rounds.next();
  for (int i = 0; i < 5; ++i) EXPECT_EQ(last[i], 4U);
  EXPECT_EQ(last[5], 2U);
  EXPECT_EQ(rounds.left(), 0U);
}

}  // namespace
}  // namespace superneurons
