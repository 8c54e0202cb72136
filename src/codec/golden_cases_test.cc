#include "codec/testing/golden_cases.h"

#include <fstream>
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>
#include <sstream>
#include <unistd.h>

#include "base/check.h"
#include "codec/yaml.h"

namespace varda::codec {
namespace golden_cases_test {

using testing::apply_difference;
using testing::GoldenCases;
using testing::make_difference;
using testing::write_difference;

Json yaml(std::string_view text) {
  auto parsed = parse_yaml(text);
  EXPECT_TRUE(parsed.ok()) << text;
  return parsed.ok() ? std::move(parsed).value() : Json();
}

TEST(Difference, AppliedDifferenceYieldsTheTargetValue) {
  const std::string_view kValues[] = {
      "{}",
      "{a: 1, b: {c: [x, y]}}",
      "{a: 2, b: {c: [x]}, labels: {example.com/a: b}}",
      "{labels: {example.com/a: c, d: e}}",
      "{list: [{name: a, v: 1}, {name: b, v: 2}, {name: c}]}",
      "{list: [{name: d, v: [1]}, {name: b, v: 2, w: {}}, {name: c}]}",
      "{list: [{name: c}, {name: b}, {name: a}]}",
      "{list: [{name: a}, {name: a}]}",
      "{list: [{kind: Pod, metadata: {name: p}, spec: {x: 1}}, {kind: Job, metadata: {name: p}}]}",
      "{list: [{kind: Pod, metadata: {name: q}, spec: {x: 2}}, {kind: Job, metadata: {name: p}}]}",
      "{list: [{kind: Pod, metadata: {name: q}}, {kind: Pod, metadata: {name: r}}]}",
      "{list: {a: b}, a: 'a, b', b: '[x]', c: '- d', e: \"f\\ng\", h: 'null', i: '1', j: ''}",
  };
  for (const auto from : kValues) {
    for (const auto to : kValues) {
      const auto difference = make_difference(yaml(from), yaml(to));
      const auto applied = apply_difference(yaml(from), difference);
      ASSERT_TRUE(applied.ok()) << from << " to " << to << "\n" << write_difference(difference);
      EXPECT_EQ(*applied, yaml(to)) << from << "\n" << write_difference(difference);
      if (difference.empty()) continue;
      EXPECT_EQ(yaml("d:\n" + write_difference(difference))["d"].as_object(), difference)
          << write_difference(difference);
    }
  }
}

TEST(Difference, WrittenDifferenceNamesItemsOnOneLineEach) {
  const Json from = yaml(
      "{conditions: [{type: Ready, status: 'True', reason: Serving}, {type: Failed, status: "
      "'False'}], objects: [{kind: Pod, metadata: {name: p, labels: {example.com/a: b}}}]}");
  const Json to = yaml(
      "{conditions: [{type: Ready, status: 'True', reason: Waiting}, {type: Late, status: 'True'}, "
      "{type: Failed, status: 'False'}], objects: [{kind: Pod, metadata: {name: p, labels: "
      "{example.com/a: c}}}]}");
  EXPECT_EQ(write_difference(make_difference(from, to)),
            "  conditions[Ready].reason: Waiting\n"
            "  conditions[Late before Failed]: {type: Late, status: \"True\"}\n"
            "  objects[Pod].metadata.labels[example.com/a]: c\n");
}

TEST(Difference, InapplicableDifferenceIsAnError) {
  for (const char* difference : {"{a.b: 1}", "{absent: null}", "{'list[7]': 1}", "{'list[x].y': 1}",
                                 "{'list[x]': null}", "{'list[y before x]': {name: y}}"}) {
    const auto applied =
        apply_difference(yaml("{a: text, list: [{name: z}]}"), yaml(difference).as_object());
    ASSERT_FALSE(applied.ok()) << difference;
    EXPECT_EQ(applied.error().code(), Code::kInvalid);
  }
}

class GoldenCasesTest : public ::testing::Test {
 protected:
  GoldenCasesTest() {
    if (const char* original = std::getenv("UPDATE_GOLDEN")) original_ = original;
    ::unsetenv("UPDATE_GOLDEN");
    std::string pattern = ::testing::TempDir() + "golden_cases_XXXXXX";
    CHECK(::mkdtemp(pattern.data()) != nullptr);
    root_ = pattern;
    write("objects.yaml", "pod: {kind: Pod, phase: Running}\n");
    write("a.yaml", kText);
    write("b.yaml", "name: far\nclaim: Other file.\nfrom: a/child\nexpect: {w: 3}\n");
  }
  ~GoldenCasesTest() override {
    if (original_) ::setenv("UPDATE_GOLDEN", original_->c_str(), 1);
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }
  void write(const char* file, const std::string& text) const {
    std::ofstream(root_ / file) << text;
  }
  std::string text(const char* file) const {
    std::ostringstream out;
    out << std::ifstream(root_ / file).rdbuf();
    return out.str();
  }

  static constexpr const char* kText =
      "# A comment.\n---\nname: base\n# Stays.\nclaim: A pod runs.\nobjects: [pod, old=pod]\n"
      "given:\n  old.phase: Failed\nexpect:\n  x: 1\n  w: 2\n---\nname: child\n"
      "claim: Without the old pod.\nfrom: base\ngiven: {old: null}\nexpect: {x: 5}\n";
  std::filesystem::path root_;
  std::optional<std::string> original_;
};

TEST_F(GoldenCasesTest, CasesInheritFromOtherCases) {
  GoldenCases cases(root_);
  EXPECT_EQ(cases.names(), (std::vector<std::string>{"base", "child", "far"}));
  EXPECT_EQ(cases.at("base").given,
            yaml("{pod: {kind: Pod, phase: Running}, old: {kind: Pod, phase: Failed}}"));
  EXPECT_EQ(cases.at("child").given, yaml("{pod: {kind: Pod, phase: Running}}"));
  EXPECT_EQ(cases.at("far").expect, yaml("{x: 5, w: 3}"));
  cases.check("far", yaml("{w: 3, x: 5}"));
}

TEST_F(GoldenCasesTest, FailureShowsTheClaimAndEachPath) {
  static GoldenCases* cases = nullptr;
  GoldenCases all(root_);
  cases = &all;
  EXPECT_NONFATAL_FAILURE(cases->check("base", yaml("{x: 1, w: 7}")),
                          "A pod runs.\nw\n  expected: 2\n  actual:   7\n");
  EXPECT_EQ(text("a.yaml"), kText);
}

TEST_F(GoldenCasesTest, UpdateRewritesOnlyExpectAndKeepsDerivedCases) {
  ::setenv("UPDATE_GOLDEN", "1", 1);
  static GoldenCases* cases = nullptr;
  GoldenCases all(root_);
  cases = &all;
  EXPECT_NONFATAL_FAILURE(cases->check("base", yaml("{x: 1, z: 7}")), "read the difference");
  EXPECT_EQ(text("a.yaml"),
            "# A comment.\n---\nname: base\n# Stays.\nclaim: A pod runs.\nobjects: [pod, old=pod]\n"
            "given:\n  old.phase: Failed\nexpect:\n  x: 1\n  z: 7\n---\nname: child\n"
            "claim: Without the old pod.\nfrom: base\ngiven: {old: null}\n"
            "expect:\n  z: null\n  x: 5\n  w: 2\n");
  EXPECT_EQ(GoldenCases(root_).at("far").expect, yaml("{x: 5, w: 3}"));
  cases->check("base", yaml("{x: 1, z: 7}"));
}

TEST_F(GoldenCasesTest, FileProblemsFailEveryCase) {
  struct Row {
    const char* text;
    const char* problem;
  };
  static constexpr Row kRows[] = {
      {"name: a\nclaim: b\nexpect: {}\nexpected: {}\n", "unknown key expected"},
      {"name: a\nclaim: b\n", "expect is missing"},
      {"name: a\nexpect: {}\n", "claim is missing"},
      {"name: a\nclaim: b\nexpect: {}\n---\nname: a\nclaim: b\nexpect: {}\n", "a name of its own"},
      {"name: a\nclaim: b\nfrom: c\nexpect: {}\n", "there is no case c"},
      {"name: a\nclaim: b\nobjects: [x]\nexpect: {}\n", "objects.yaml has no x"},
      {"name: a\nclaim: b\nexpect: {x: null}\n", "nothing to change at x"},
      {"name: [\n", "a.yaml: line"},
  };
  std::filesystem::remove(root_ / "b.yaml");
  for (const Row& row : kRows) {
    write("a.yaml", row.text);
    static GoldenCases* cases = nullptr;
    GoldenCases all(root_);
    cases = &all;
    ::testing::TestPartResultArray failures;
    {
      const ::testing::ScopedFakeTestPartResultReporter reporter(
          ::testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &failures);
      (void)cases->at(cases->names().front());
    }
    ASSERT_GE(failures.size(), 1) << row.text;
    EXPECT_NE(std::string_view(failures.GetTestPartResult(0).message()).find(row.problem),
              std::string_view::npos)
        << failures.GetTestPartResult(0).message();
  }
}

}  // namespace golden_cases_test
}  // namespace varda::codec
