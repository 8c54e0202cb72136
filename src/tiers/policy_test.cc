#include "tiers/policy.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <iomanip>
#include <regex>
#include <set>
#include <sstream>

#include "codec/yaml.h"

namespace varda::tiers {
namespace policy_test {

using codec::Json;
using tensor::DType;
using tensor::Named;
using tensor::Spec;
using tensor::Tensor;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Json table() {
  std::ifstream file(std::filesystem::path(VARDA_TESTDATA) / "policies.yaml");
  std::ostringstream text;
  text << file.rdbuf();
  auto yaml = codec::parse_yaml(text.str());
  EXPECT_TRUE(yaml.ok()) << yaml.error();
  return yaml.ok() ? std::move(*yaml) : Json();
}

double number(const Json& json) {
  if (!json.is_string()) return json.as_double(std::nan(""));
  if (json.as_string() == "inf") return HUGE_VAL;
  return json.as_string() == "-inf" ? -HUGE_VAL : std::nan("");
}

std::vector<double> numbers(const Json& json) {
  std::vector<double> out;
  for (const Json& item : json.as_array()) out.push_back(number(item));
  return out;
}

std::uint16_t to_half(double value) {
  int exponent = 0;
  std::frexp(value, &exponent);
  if (value <= 0 || value >= 2 || exponent < -13)
    return value == 0 ? 0 : 0x7e00;  // NaN: no row needs more
  const double mantissa = std::nearbyint(std::ldexp(value, 11 - exponent));
  return static_cast<std::uint16_t>(((exponent + 14) << 10) + static_cast<int>(mantissa) - 1024);
}

Tensor tensor_of(DType type, tensor::Shape shape, const std::vector<double>& values) {
  const std::vector<float> floats(values.begin(), values.end());
  std::vector<std::uint16_t> halves;
  for (const double value : values) {
    const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(value));
    halves.push_back(type == DType::kFp16 ? to_half(value)
                                          : static_cast<std::uint16_t>((bits + 0x8000) >> 16));
  }
  if (type == DType::kFp64) return Tensor::of<double>(type, std::move(shape), values).value();
  if (type == DType::kFp32) return Tensor::of<float>(type, std::move(shape), floats).value();
  return Tensor::of<std::uint16_t>(type, std::move(shape), halves).value();
}

std::vector<PolicyParameter> parameters(const Json& json) {
  std::vector<PolicyParameter> out;
  for (const auto& [key, value] : json.as_object()) out.push_back({key, value.as_string()});
  return out;
}

std::shared_ptr<const Policy> policy(std::string_view name,
                                     const std::vector<PolicyParameter>& parameters = {}) {
  auto made = make_policy(name, parameters);
  EXPECT_TRUE(made.ok()) << made.error();
  return made.ok() ? std::move(*made) : nullptr;
}

Judgement judged(const std::shared_ptr<const Policy>& policy, DType type,
                 const std::vector<double>& values, std::vector<std::string> labels) {
  const auto count = static_cast<std::int64_t>(values.size());
  const bool boxes = policy->row().input == PolicyInput::kBoxScores;
  const bool logits = policy->row().input == PolicyInput::kClassLogits;
  const std::string name = boxes ? "scores" : logits ? "logits" : "probabilities";
  const Spec spec{name, type, boxes ? tensor::Shape{-1} : tensor::Shape{-1, count}};
  const auto bound = BoundPolicy::bind(policy, std::vector{spec}, std::move(labels));
  EXPECT_TRUE(bound.ok()) << bound.error();
  if (!bound.ok()) return {};
  EXPECT_THAT(bound->reads(), ElementsAre(name));
  return bound->after(std::vector<Named>{
      {name, tensor_of(type, boxes ? tensor::Shape{count} : tensor::Shape{1, count}, values)}});
}

std::string verdict_text(const Judgement& judgement) {
  EXPECT_EQ(judgement.hard, judgement.samples_hard > 0);
  EXPECT_LE(judgement.samples_hard + judgement.samples_invalid, 1U);
  return judgement.samples_invalid > 0 ? "invalid" : judgement.hard ? "hard" : "easy";
}

TEST(PolicyTable, EveryPolicyMatchesItsFormulaOnEdgeValues) {
  std::size_t rows = 0;
  std::set<std::string> seen;
  const Json groups = table();
  for (const Json& group : groups.as_array()) {
    const std::string name = group["policy"].as_string();
    seen.insert(name);
    const DType type = tensor::parse_dtype(group["type"].string_or("FP64")).value();
    std::vector<std::string> labels;
    for (const Json& label : group["labels"].as_array()) labels.push_back(label.as_string());
    const auto made = policy(name, parameters(group["parameters"]));
    ASSERT_NE(made, nullptr);
    for (const Json& row : group["rows"].as_array()) {
      SCOPED_TRACE(name + " " + codec::write_json(group["parameters"]) + " " +
                   codec::write_json(row));
      ++rows;
      EXPECT_EQ(verdict_text(judged(made, type, numbers(row["of"]), labels)),
                row["is"].as_string());
      if (!row.contains("measure")) continue;
      const double measure = row["measure"].as_double();
      const std::string key(made->row().parameters.front().key);
      for (const double side : {-1e-9, 1e-9}) {
        if (measure + side < 0 || measure + side > 1) continue;
        std::ostringstream text;
        text << std::fixed << std::setprecision(15) << measure + side;
        EXPECT_EQ(verdict_text(
                      judged(policy(name, {{key, text.str()}}), type, numbers(row["of"]), labels)),
                  side < 0 ? "easy" : "hard");
      }
    }
  }
  EXPECT_GT(rows, 70U);
  for (const PolicyRow& row : policy_table()) {
    EXPECT_EQ(seen.contains(std::string(row.name)), row.input != PolicyInput::kNothing) << row.name;
  }
}

TEST(PolicyTable, DefaultsAreValidParameters) {
  for (const PolicyRow& row : policy_table()) {
    EXPECT_EQ(find_policy(row.name), &row);
    for (const std::string_view alias : row.aliases) EXPECT_EQ(find_policy(alias), &row);
    std::vector<PolicyParameter> parameters;
    for (const ParameterRow& parameter : row.parameters) {
      EXPECT_FALSE(parameter.required && parameter.initial) << parameter.key;
      if (parameter.initial)
        parameters.push_back({std::string(parameter.key), std::string(*parameter.initial)});
      if (parameter.required) parameters.push_back({std::string(parameter.key), "x"});
    }
    EXPECT_TRUE(make_policy(row.name, parameters).ok()) << row.name;
  }
}

std::string faults(std::string_view name, const std::vector<PolicyParameter>& parameters) {
  std::string out;
  for (const PolicyFault& fault : check_policy(name, parameters))
    out += fault.where + ": " + fault.what + "\n";
  EXPECT_EQ(make_policy(name, parameters).ok(), out.empty());
  return out;
}

TEST(PolicyTable, ErrorNamesTheInvalidParameterWithASuggestion) {
  EXPECT_EQ(faults("crossentropy", {}),
            "name: unknown policy 'crossentropy'; did you mean CrossEntropy?\n");
  EXPECT_EQ(faults("cloudonly", {}), "name: unknown policy 'cloudonly'; did you mean CloudOnly?\n");
  EXPECT_THAT(
      faults("Surprise", {}),
      HasSubstr(
          "known policies: Threshold, CrossEntropy, IBT, Random, AlwaysCloud (or CloudOnly), "));
  EXPECT_THAT(faults("", {}), HasSubstr("name: is required"));
  EXPECT_EQ(faults("IBT", {{"Threshold_Img", "0.5"}}),
            "parameters[0].key: unknown parameter 'Threshold_Img'; did you mean threshold_img?\n");
  EXPECT_EQ(
      faults("IBT", {{"threshold", "0.5"}}),
      "parameters[0].key: IBT has no parameter 'threshold'; its parameters are threshold_img, "
      "threshold_box, output\n");
  EXPECT_EQ(faults("AlwaysCloud", {{"x", "1"}}),
            "parameters[0].key: AlwaysCloud has no parameter 'x'; it has no parameters\n");
  EXPECT_EQ(faults("Random", {{"random_ratio", "0.1"}, {"random_ratio", "0.1"}}),
            "parameters[1].key: 'random_ratio' occurs twice\n");
  EXPECT_EQ(faults("Labels", {}), "parameters: Labels needs the parameter labels\n");
  EXPECT_EQ(faults("Labels", {{"labels", "a,,b"}}), "parameters[0].value: has an empty item\n");
  EXPECT_EQ(faults("Labels", {{"labels", " "}}), "parameters[0].value: must not be empty\n");
  EXPECT_EQ(faults("Labels", {{"labels", "[1]"}}),
            "parameters[0].value: begins with '[' and is not a JSON list of strings\n");
  EXPECT_EQ(faults("Threshold", {{"output", ""}}), "parameters[0].value: must not be empty\n");
  EXPECT_EQ(faults("Threshold", {{"output", "\xff"}}), "parameters[0].value: must be UTF-8\n");
  EXPECT_EQ(faults("Threshold", {{"threshold", "1.5"}, {"output", ""}}),
            "parameters[0].value: must be a number from 0 to 1, not '1.5'\nparameters[1].value: "
            "must not be empty\n");
}

TEST(PolicyTable, NumbersMustBeDecimalAndInRange) {
  for (const char* good :
       {"0", "1", "0.5", ".5", "1.", "5e-1", "1E0", "0.10e+0", "00.5", "1e-99"}) {
    EXPECT_TRUE(parse_number(good, 0, 1).ok()) << good;
  }
  for (const char* bad :
       {"",      " 0.5", "0.5 ", "+0.5",  "-0",    "-0.1", "1.1",
        "nan",   "NaN",  "inf",  "0x1",   "0,5",   ".",    "e1",
        "1e",    "1e+",  "0.5f", "1e999", "0.1.2", "½",    "000000000000000000000",
        "1e-100"}) {
    EXPECT_FALSE(parse_number(bad, 0, 1).ok()) << bad;
  }
  EXPECT_EQ(parse_number("5e-1", 0, 1).value(), 0.5);
}

TEST(PolicyTable, NumberParserMatchesTheSchemaPattern) {
  const std::regex pattern{std::string(kNumberPattern)};
  const auto rng = seeded_rng(11);
  constexpr std::string_view kAlphabet = "0123456789.eE+-";
  int numbers = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string text(1 + rng->below(i % 10 == 0 ? 30 : 6), '0');
    for (char& c : text) c = kAlphabet[rng->below(kAlphabet.size())];
    const bool number = std::regex_match(text, pattern);
    numbers += number ? 1 : 0;
    EXPECT_EQ(parse_number(text, 0, HUGE_VAL).ok(), number) << text;
  }
  EXPECT_GT(numbers, 1000);
}

TEST(PolicyTable, TextListsAreCommaSeparatedOrJson) {
  EXPECT_THAT(parse_text_list(" a , b c,d").value(), ElementsAre("a", "b c", "d"));
  EXPECT_THAT(parse_text_list(R"( ["tiger, cat", " dog "] )").value(),
              ElementsAre("tiger, cat", "dog"));
  EXPECT_FALSE(parse_text_list("[]").ok());
  EXPECT_FALSE(parse_text_list(R"(["a", [])").ok());
}

TEST(Policy, PoliciesWithoutAnAnswerDecideBeforeInference) {
  const auto rng = seeded_rng(7);
  EXPECT_EQ(policy("AlwaysCloud")->before(*rng), true);
  EXPECT_EQ(policy("CloudOnly")->before(*rng), true);
  EXPECT_EQ(policy("NeverCloud")->before(*rng), false);
  EXPECT_EQ(policy("EdgeOnly")->before(*rng), false);
  EXPECT_EQ(policy("IBT")->before(*rng), std::nullopt);
  for (const auto& [ratio, least, most] :
       {std::tuple{"0", 0, 0}, std::tuple{"1", 10000, 10000}, std::tuple{"", 2800, 3200}}) {
    const auto random =
        policy("Random", *ratio == 0 ? std::vector<PolicyParameter>()
                                     : std::vector<PolicyParameter>{{"random_ratio", ratio}});
    int hard = 0;
    for (int i = 0; i < 10000; ++i) hard += random->before(*rng).value() ? 1 : 0;
    EXPECT_GE(hard, least) << ratio;
    EXPECT_LE(hard, most) << ratio;
  }
}

// --- finding the input

Spec real(std::string name, tensor::Shape shape) {
  return {std::move(name), DType::kFp32, std::move(shape)};
}
Named real(std::string name, tensor::Shape shape, const std::vector<double>& values) {
  return {std::move(name), tensor_of(DType::kFp32, std::move(shape), values)};
}
Named integers(std::string name, tensor::Shape shape, const std::vector<std::int64_t>& values) {
  return {std::move(name),
          Tensor::of<std::int64_t>(DType::kInt64, std::move(shape), values).value()};
}

std::string reads(const std::shared_ptr<const Policy>& policy, const std::vector<Spec>& outputs) {
  const auto bound = BoundPolicy::bind(policy, outputs);
  if (!bound.ok()) {
    EXPECT_EQ(bound.error().code(), Code::kInvalid);
    return bound.error().message();
  }
  std::string out;
  for (const std::string& name : bound->reads()) out += (out.empty() ? "" : ",") + name;
  return out;
}

TEST(BoundPolicy, ClassProbabilitiesAreFoundInTheOutputs) {
  const auto entropy = policy("CrossEntropy");
  const Spec boxes = real("boxes", {-1, 4});
  const Spec scores = real("scores", {-1, 100});
  EXPECT_EQ(reads(entropy, {real("out", {-1, 10})}), "out");
  EXPECT_EQ(reads(entropy, {real("out", {-1, 10, 1, 1})}), "out");
  EXPECT_EQ(reads(entropy, {real("out", {10})}), "out");
  EXPECT_EQ(reads(entropy, {real("logits", {-1, 10}), real("probabilities", {-1, 10})}),
            "probabilities");
  EXPECT_EQ(reads(entropy, {{"label", DType::kInt64, {-1}}, real("p", {-1, -1})}), "p");
  EXPECT_EQ(
      reads(entropy,
            {{"labels", DType::kBytes, {-1, 5}}, real("scores", {-1, 5}), real("p", {-1, 10})}),
      "p");
  EXPECT_EQ(reads(policy("Margin", {{"output", "b"}}), {real("a", {-1, 10}), real("b", {-1, 10})}),
            "b");
  // Rejected: two candidates, one number per sample, feature maps, integers, boxes, nothing.
  EXPECT_THAT(
      reads(entropy, {real("a", {-1, 10}), real("b", {-1, 10})}),
      HasSubstr(
          "the policy CrossEntropy reads class probabilities (FP16, FP32 or FP64 [N,classes]), and "
          "the model has the outputs "
          "a FP32 [-1,10], b FP32 [-1,10]; name one of them in the parameter output"));
  EXPECT_THAT(reads(entropy, {real("a", {-1})}),
              HasSubstr("the model has the outputs a FP32 [-1]"));
  EXPECT_THAT(reads(entropy, {real("a", {-1, 21, 33, 33})}),
              HasSubstr("the model has the outputs"));
  EXPECT_THAT(reads(entropy, {{"a", DType::kInt64, {-1, 10}}}),
              HasSubstr("the model has the outputs"));
  EXPECT_THAT(reads(entropy, {boxes, scores}), HasSubstr("the model has the outputs"));
  EXPECT_THAT(reads(entropy, {}), HasSubstr("the model has no outputs"));
  EXPECT_THAT(reads(policy("Margin", {{"output", "c"}}), {real("a", {-1, 10})}),
              HasSubstr("the parameter output is c"));
  EXPECT_THAT(reads(entropy, {{"probabilities", DType::kInt64, {-1, 10}}, real("a", {-1, 10})}),
              HasSubstr("the model has the outputs"));
}

TEST(BoundPolicy, BoxScoresAreFoundInTheOutputs) {
  const auto ibt = policy("IBT");
  const Spec counts{"counts", DType::kInt64, {-1}};
  EXPECT_EQ(
      reads(
          ibt,
          {real("boxes", {-1, 4}), real("scores", {-1}), {"labels", DType::kBytes, {-1}}, counts}),
      "scores,counts");
  EXPECT_EQ(reads(ibt, {real("detection_boxes", {1, 100, 4}), real("detection_scores", {1, 100}),
                        real("num_detections", {1})}),
            "detection_scores,num_detections");
  EXPECT_EQ(reads(ibt, {real("scores", {-1, 100})}), "scores");
  EXPECT_EQ(reads(ibt, {real("detections", {-1, -1, 6})}), "detections");
  EXPECT_EQ(reads(ibt, {real("detections", {-1, 6})}), "detections");
  EXPECT_EQ(reads(policy("Threshold", {{"output", "x"}}), {real("x", {-1, 6})}), "x");
  // A classifier returns no boxes, though its output has the shape of scores.
  EXPECT_THAT(reads(ibt, {real("probabilities", {-1, 10})}),
              HasSubstr("the policy IBT reads scores of boxes"));
  EXPECT_THAT(reads(ibt, {real("boxes", {-1, 4})}), HasSubstr("the model has the outputs"));
  EXPECT_THAT(reads(ibt, {{"scores", DType::kInt32, {-1}}}),
              HasSubstr("the model has the outputs"));
}

TEST(BoundPolicy, LabelsAreFoundInTheOutputs) {
  const auto labels = policy("Labels", {{"labels", "a"}});
  EXPECT_EQ(
      reads(labels,
            {{"labels", DType::kBytes, {-1, 5}}, real("scores", {-1, 5}), real("p", {-1, 10})}),
      "labels");
  EXPECT_EQ(reads(labels, {{"labels", DType::kBytes, {-1}}, {"counts", DType::kInt64, {-1}}}),
            "labels,counts");
  EXPECT_EQ(reads(labels, {{"label", DType::kInt64, {-1}}, real("p", {-1, 10})}), "p");
  EXPECT_THAT(reads(labels, {{"label", DType::kInt64, {-1}}}),
              HasSubstr("the policy Labels reads the best label"));
  EXPECT_EQ(reads(policy("AlwaysCloud"), {}), "");
}

Judgement after(const std::shared_ptr<const Policy>& policy, const std::vector<Spec>& specs,
                const std::vector<Named>& outputs) {
  const auto bound = BoundPolicy::bind(policy, specs, {"a", "b", "c"});
  EXPECT_TRUE(bound.ok()) << bound.error();
  return bound.ok() ? bound->after(outputs) : Judgement{};
}

TEST(BoundPolicy, RequestIsHardIfOneSampleIsHard) {
  const auto entropy = policy("CrossEntropy");
  const std::vector<Spec> specs{real("p", {-1, 3})};
  EXPECT_EQ(after(entropy, specs, {real("p", {3, 3}, {1, 0, 0, 0.4, 0.3, 0.3, 2, 0, 0})}),
            (Judgement{true, 3, 1, 1}));
  EXPECT_EQ(
      after(entropy, specs, {real("other", {1}, {0}), real("p", {2, 3, 1}, {1, 0, 0, 0, 1, 0})}),
      (Judgement{false, 2, 0, 0}));
  EXPECT_EQ(after(entropy, specs, {real("p", {0, 3}, {})}), (Judgement{false, 0, 0, 0}));
  EXPECT_EQ(after(entropy, specs, {real("p", {5, 0}, {})}), (Judgement{false, 5, 0, 0}));
}

TEST(BoundPolicy, BoxesAreReadInEveryLayout) {
  const auto ibt = policy("IBT");
  const std::vector<Spec> flat{real("scores", {-1}), {"counts", DType::kInt64, {-1}}};
  // Three images: the second has no box, the third has uncertain ones.
  EXPECT_EQ(
      after(ibt, flat, {integers("counts", {3}, {1, 0, 2}), real("scores", {3}, {0.9, 0.1, 0.2})}),
      (Judgement{true, 3, 1, 0}));
  EXPECT_EQ(
      after(ibt, flat, {integers("counts", {2}, {2, 1}), real("scores", {3}, {0.9, 0.8, 0.7})}),
      (Judgement{false, 2, 0, 0}));
  EXPECT_EQ(after(ibt, flat, {integers("counts", {2}, {0, 0}), real("scores", {0}, {})}).hard,
            false);
  const Judgement unreadable{false, 1, 0, 1};
  EXPECT_EQ(
      after(ibt, flat, {integers("counts", {2}, {2, 2}), real("scores", {3}, {0.9, 0.8, 0.7})}),
      unreadable);
  EXPECT_EQ(
      after(ibt, flat, {integers("counts", {2}, {4, -1}), real("scores", {3}, {0.9, 0.8, 0.7})}),
      unreadable);
  EXPECT_EQ(after(ibt, flat, {real("scores", {3}, {0.1, 0.1, 0.1})}), unreadable);
  // Padding after the valid boxes.
  const std::vector<Spec> padded{real("detection_scores", {-1, 4}),
                                 real("num_detections", {-1, 1})};
  EXPECT_EQ(after(ibt, padded,
                  {real("detection_scores", {2, 4}, {0.9, 0, 0, 0, 0.9, 0.1, 0, 0}),
                   real("num_detections", {2, 1}, {1, 2})}),
            (Judgement{true, 2, 1, 0}));
  EXPECT_EQ(after(ibt, padded,
                  {real("detection_scores", {1, 4}, {0.9, 0, 0, 0}),
                   real("num_detections", {1, 1}, {0.5})}),
            unreadable);
  EXPECT_EQ(after(ibt, padded,
                  {real("detection_scores", {1, 4}, {0.9, 0, 0, 0}),
                   real("num_detections", {1, 1}, {5})}),
            unreadable);
  // The score follows four coordinates.
  const std::vector<Spec> rows{real("detections", {-1, -1, 6})};
  EXPECT_EQ(
      after(ibt, rows,
            {real("detections", {2, 1, 6}, {10, 20, 30, 40, 0.9, 7, 10, 20, 30, 40, 0.2, 7})}),
      (Judgement{true, 2, 1, 0}));
  const std::vector<Spec> one{real("boxes", {-1, 6})};
  EXPECT_EQ(after(ibt, one, {real("boxes", {2, 6}, {1, 2, 3, 4, 0.9, 0, 1, 2, 3, 4, 0.8, 0})}),
            (Judgement{false, 1, 0, 0}));
}

TEST(BoundPolicy, LabelsAreReadAsTextOrFromTheLabelList) {
  const auto labels = policy("Labels", {{"labels", "b"}});
  const auto texts = [](tensor::Shape shape, std::vector<std::string> items) {
    return Named{"labels", Tensor::of_strings(std::move(shape), items).value()};
  };
  const std::vector<Spec> ranked{{"labels", DType::kBytes, {-1, 2}}};
  EXPECT_EQ(after(labels, ranked, {texts({2, 2}, {"a", "b", "b", "a"})}),
            (Judgement{true, 2, 1, 0}));
  EXPECT_EQ(after(labels, ranked, {texts({1, 2}, {"a", "b"})}), (Judgement{false, 1, 0, 0}));
  EXPECT_EQ(after(labels, {{"labels", DType::kBytes, {-1}}}, {texts({3}, {"a", "b", "c"})}),
            (Judgement{true, 3, 1, 0}));
  const std::vector<Spec> boxes{{"labels", DType::kBytes, {-1}}, {"counts", DType::kInt64, {-1}}};
  EXPECT_EQ(after(labels, boxes, {texts({3}, {"a", "b", "c"}), integers("counts", {3}, {2, 0, 1})}),
            (Judgement{false, 3, 0, 0}));
  EXPECT_EQ(after(labels, boxes, {texts({3}, {"a", "b", "c"}), integers("counts", {2}, {1, 2})}),
            (Judgement{true, 2, 1, 0}));
  EXPECT_EQ(after(labels, {real("p", {-1, 3})}, {real("p", {1, 3}, {0.1, 0.8, 0.1})}),
            (Judgement{true, 1, 1, 0}));
}

TEST(BoundPolicy, AnswerThatDiffersFromTheBoundOutputIsInvalid) {
  const auto entropy = policy("CrossEntropy");
  const std::vector<Spec> specs{real("p", {-1, 3})};
  const Judgement invalid{false, 1, 0, 1};
  EXPECT_EQ(after(entropy, specs, {}), invalid);
  EXPECT_EQ(after(entropy, specs, {real("p", {3}, {0.4, 0.3, 0.3})}), invalid);
  EXPECT_EQ(after(entropy, specs, {real("p", {1, 3, 2}, {0, 0, 0, 0, 0, 0})}), invalid);
  EXPECT_EQ(after(entropy, specs, {integers("p", {1, 3}, {1, 0, 0})}), invalid);
  const std::vector<std::string> texts{"a", "b"};
  EXPECT_EQ(after(entropy, specs, {{"p", Tensor::of_strings({1, 2}, texts).value()}}), invalid);
}

TEST(Judge, JudgeBindsToTheGivenOutputs) {
  const auto entropy = policy("CrossEntropy");
  EXPECT_EQ(judge(entropy, std::vector<Named>{real("p", {1, 2}, {0.5, 0.5})}),
            (Judgement{true, 1, 1, 0}));
  EXPECT_EQ(judge(entropy, std::vector<Named>{}), (Judgement{false, 1, 0, 1}));
}

}  // namespace policy_test
}  // namespace varda::tiers
