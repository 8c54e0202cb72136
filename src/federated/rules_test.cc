#include "federated/rules.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <iterator>
#include <numeric>
#include <random>

#include "codec/digest.h"
#include "federated/testing/updates.h"
#include "os/testing/test_directory.h"

namespace varda::federated {
namespace rules_test {

using codec::Json;
using ::testing::ElementsAre;
using testing::flat_layout;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::mixed_layout;
using testing::random_values;
using testing::update_of;

constexpr Bounds kNoBounds = {.norm_max = 0, .norm_factor = 0, .weight_factor = 0, .weight_max = 0};

std::unique_ptr<Rule> rule_of(const std::string& name, const LayoutPointer& layout,
                              Json parameters = Json::object()) {
  auto rule =
      Rule::make(Json::object({{"name", name}, {"parameters", std::move(parameters)}}), layout);
  CHECK(rule.ok());
  return std::move(rule).value();
}

/// Updates and the contributions that refer to them.
struct Clients {
  LayoutPointer layout;
  std::vector<std::unique_ptr<UpdateReader>> updates;
  std::vector<Contribution> contributions;

  void add(const std::string& name, std::span<const float> delta, std::uint64_t samples = 1,
           const EncodeOptions& options = {}) {
    updates.push_back(update_of(layout, delta, options, samples));
    contributions.push_back({name, samples, 1.0, updates.back().get(), 1.0});
  }
};

Clients random_clients(const LayoutPointer& layout, std::size_t count, std::uint64_t seed) {
  Clients out{layout, {}, {}};
  const std::vector<float> control = random_values(layout->size(), seed + 1000);
  for (std::size_t i = 0; i < count; ++i) {
    EncodeOptions options;
    options.encoding = static_cast<Encoding>(i % 3);
    options.keep = 0.3;
    options.seed = i;
    options.control = control;
    out.add("c" + std::to_string(100 + i), random_values(layout->size(), seed + i), 1 + i * 7 % 5,
            options);
    out.contributions.back().loss = 0.5 + 0.1 * static_cast<double>(i);
  }
  return out;
}

std::vector<float> floats_of(const Json& json) {
  std::vector<float> out;
  for (const Json& value : json.as_array()) out.push_back(static_cast<float>(value.as_double()));
  return out;
}

std::string read_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(PrivateMean, IsTheClippedSumByTheFixedDivisorWithNoise) {
  const LayoutPointer layout = flat_layout(5000);
  Clients clients{layout, {}, {}};
  std::vector<float> small(layout->size(), 0.001F), large(layout->size(), -0.1F);
  clients.add("a", small, 7);
  clients.add("b", large, 900);
  const double clip = 1, norm = clients.updates[1]->norm();
  ASSERT_LT(clients.updates[0]->norm(), clip);
  const auto rule = rule_of("FedAvg", layout);
  PrivateMean mean{.clip = clip, .clients = 4, .deviation = 0, .seed = {1}};
  std::vector<float> model(layout->size());
  const auto applied =
      rule->apply(Context(), clients.contributions, model, {.bounds = kNoBounds, .privacy = mean});
  ASSERT_TRUE(applied.ok()) << applied.error();
  EXPECT_EQ(applied->whole, 1U);
  EXPECT_NEAR(model[0], (0.001 - 0.1 * clip / norm) / 4, 1e-7);

  mean.deviation = 0.5;
  std::vector<float> first, noisy(layout->size());
  for (const std::size_t threads : {1U, 2U, 5U}) {
    std::fill(noisy.begin(), noisy.end(), 0.F);
    ASSERT_TRUE(rule->apply(Context(), clients.contributions, noisy,
                            {.threads = threads, .bounds = kNoBounds, .privacy = mean})
                    .ok());
    if (first.empty()) first = noisy;
    EXPECT_EQ(first, noisy) << threads;
  }
  double squares = 0;
  for (std::size_t i = 0; i < noisy.size(); ++i)
    squares += std::pow(static_cast<double>(noisy[i]) - model[i], 2);
  EXPECT_NEAR(std::sqrt(squares / static_cast<double>(noisy.size())), 0.5, 0.02);
}

TEST(PrivateMean, RulesWithoutAMeanRefuse) {
  const LayoutPointer layout = flat_layout(10);
  Clients clients = random_clients(layout, 8, 1);
  std::vector<float> model(layout->size());
  for (const std::string& name : Rule::names()) {
    const auto rule = rule_of(name, layout);
    const auto applied =
        rule->apply(Context(), clients.contributions, model,
                    {.bounds = kNoBounds, .privacy = PrivateMean{.clip = 1, .clients = 8}});
    EXPECT_EQ(applied.ok(), rule->supports_privacy()) << name;
  }
  EXPECT_FALSE(rule_of("Median", layout)->supports_privacy());
  EXPECT_TRUE(rule_of("FedAdam", layout)->supports_privacy());
}

// testdata/rules.py computes the expectations from the papers' formulas.
TEST(Rules, FollowTheFormulasOfTheirPapers) {
  const Json table = codec::parse_json(read_text(VARDA_TESTDATA "/rules.json")).value();
  std::vector<std::string> covered;
  for (const Json& one : table["cases"].as_array()) {
    const std::string name = one["name"].as_string();
    SCOPED_TRACE(name + " " + codec::write_json(one["parameters"]));
    covered.push_back(name);
    std::vector<float> model = floats_of(one["model"]);
    const LayoutPointer layout = flat_layout(model.size());
    std::unique_ptr<Rule> rule = rule_of(name, layout, one["parameters"]);
    for (const Json& round : one["rounds"].as_array()) {
      Clients clients{layout, {}, {}};
      const auto& updates = round["updates"].as_array();
      for (std::size_t i = 0; i < updates.size(); ++i) {
        const std::vector<float> control = floats_of(round["controls"].as_array()[i]);
        clients.add("c" + std::to_string(100 + i), floats_of(updates[i]),
                    static_cast<std::uint64_t>(round["samples"].as_array()[i].as_integer()),
                    {.control = control});
        clients.contributions.back().loss = round["losses"].as_array()[i].as_double();
        clients.contributions.back().scale = round["scales"].as_array()[i].as_double();
      }
      const std::vector<float> before = model;
      const auto applied = rule->apply(Context::background(), clients.contributions, model,
                                       {.threads = 1, .bounds = kNoBounds});
      ASSERT_TRUE(applied.ok()) << applied.error();
      const std::vector<float> expected = floats_of(round["expected"]);
      double step = 0;
      for (std::size_t i = 0; i < model.size(); ++i) {
        EXPECT_NEAR(model[i], expected[i], 2e-6 * std::max(1.0f, std::abs(expected[i])));
        step += std::pow(static_cast<double>(model[i]) - before[i], 2);
      }
      EXPECT_NEAR(applied->norm, std::sqrt(step), 1e-9 * std::max(1.0, applied->norm));
      const std::vector<float> control = floats_of(round["expectedControl"]);
      for (std::size_t i = 0; i < control.size(); ++i)
        EXPECT_NEAR(rule->control()[i], control[i], 2e-6);
      // The next round continues from the saved state.
      std::unique_ptr<Rule> next = rule_of(name, layout, one["parameters"]);
      ASSERT_TRUE(next->restore(rule->state().value()).ok());
      rule = std::move(next);
    }
  }
  std::sort(covered.begin(), covered.end());
  covered.erase(std::unique(covered.begin(), covered.end()), covered.end());
  EXPECT_EQ(covered, Rule::names());
}

/// Digest of the model and the state after two rounds.
codec::Sha256 digest_of(const std::string& name, const Clients& clients, std::size_t threads,
                        std::uint64_t order) {
  const auto rule = rule_of(name, clients.layout);
  std::vector<float> model = random_values(clients.layout->size(), 77);
  std::mt19937_64 shuffle(order);
  for (int round = 0; round < 2; ++round) {
    std::vector<Contribution> contributions = clients.contributions;
    std::shuffle(contributions.begin(), contributions.end(), shuffle);
    const auto applied =
        rule->apply(Context::background(), std::move(contributions), model, {.threads = threads});
    CHECK(applied.ok());
  }
  return codec::Sha256::of(
      std::string(reinterpret_cast<const char*>(model.data()), 4 * model.size()) +
      rule->state().value());
}

TEST(Rules, AnyOrderAndAnyNumberOfThreadsGiveOneDigest) {
  const Clients clients = random_clients(mixed_layout(50'001), 11, 5);
  for (const std::string& name : Rule::names()) {
    const codec::Sha256 expected = digest_of(name, clients, 1, 0);
    for (std::uint64_t order = 1; order <= 20; ++order)
      ASSERT_EQ(digest_of(name, clients, order % 5 + 1, order), expected) << name << order;
  }
}

TEST(Rules, AnotherSetGivesAnotherDigest) {
  const Clients clients = random_clients(mixed_layout(2'000), 11, 5);
  Clients fewer = random_clients(mixed_layout(2'000), 11, 5);
  fewer.contributions.pop_back();
  for (const std::string& name : Rule::names()) {
    if (name == "Krum" || name == "MultiKrum") continue;  // may choose the same updates
    EXPECT_NE(digest_of(name, clients, 1, 0), digest_of(name, fewer, 1, 0)) << name;
  }
}

TEST(Rules, UpdatesInFilesGiveTheSameBits) {
  const LayoutPointer layout = mixed_layout(300'000);
  const os::testing::TestDirectory directory;
  Clients memory{layout, {}, {}}, files{layout, {}, {}};
  for (int i = 0; i < 5; ++i) {
    const std::string name = "c" + std::to_string(i);
    const std::vector<float> delta = random_values(layout->size(), 40 + static_cast<unsigned>(i));
    memory.add(name, delta);
    directory.write(name, encode_update({.samples = 1}, *layout, delta).value());
    files.updates.push_back(
        UpdateReader::open(os::real_file_system(), directory / name, layout).value());
    files.contributions.push_back({name, 1, 1.0, files.updates.back().get(), 1.0});
  }
  for (const char* name : {"FedAvg", "Median", "Krum", "RFA"})
    EXPECT_EQ(digest_of(name, memory, 1, 0), digest_of(name, files, 2, 0)) << name;
}

TEST(Rules, RobustRulesIgnoreAnAttacker) {
  const LayoutPointer layout = flat_layout(500);
  const std::vector<float> truth = random_values(500, 1);
  Clients clients{layout, {}, {}};
  for (std::size_t i = 0; i < 11; ++i) {
    std::vector<float> delta = truth;
    const std::vector<float> noise = random_values(500, 50 + i, 0.1);
    for (std::size_t j = 0; j < 500; ++j) delta[j] += noise[j];
    if (i < 2)
      for (float& value : delta) value *= -100;
    clients.add("c" + std::to_string(10 + i), delta);
  }
  const auto error_of = [&](const std::string& name, const Bounds& bounds) {
    std::vector<float> model(500);
    const auto rule = rule_of(name, layout);
    CHECK(
        rule->apply(Context::background(), clients.contributions, model, {.bounds = bounds}).ok());
    double sum = 0;
    for (std::size_t j = 0; j < 500; ++j) sum += std::pow(model[j] - truth[j], 2);
    return std::sqrt(sum / 500);
  };
  EXPECT_GT(error_of("FedAvg", kNoBounds), 1);
  EXPECT_LT(error_of("FedAvg", {}), 0.1);  // the bounds quarantine both
  for (const char* name : {"Median", "Krum", "MultiKrum", "Bulyan", "RFA"})
    EXPECT_LT(error_of(name, kNoBounds), 0.1) << name;
  EXPECT_LT(error_of("NormClipping", kNoBounds), 0.5);
}

TEST(Rules, KrumPicksTheCentreAndTheFirstOfEquals) {
  const LayoutPointer layout = flat_layout(1);
  Clients clients{layout, {}, {}};
  const float values[] = {5, 1, 1.5f, 2, -9};
  for (std::size_t i = 0; i < 5; ++i)
    clients.add("c" + std::to_string(i), std::span(values).subspan(i, 1));
  std::vector<float> model(1);
  const auto rule = rule_of("Krum", layout, Json::object({{"byzantine", 1}}));
  auto applied =
      rule->apply(Context::background(), clients.contributions, model, {.bounds = kNoBounds});
  EXPECT_THAT(model, ElementsAre(1.5f));
  EXPECT_EQ(applied->shares[2].weight, 1);
  EXPECT_EQ(applied->shares[0].weight, 0);

  Clients equal{layout, {}, {}};
  for (std::size_t i = 0; i < 5; ++i)
    equal.add("c" + std::to_string(i), std::span(values).subspan(3, 1));
  applied = rule->apply(Context::background(), equal.contributions, model, {});
  EXPECT_EQ(applied->shares[0].weight, 1);
}

TEST(Rules, TooFewUpdatesNameTheNumberAndChangeNothing) {
  const struct {
    const char* name;
    Json parameters;
    std::size_t least;
  } cases[] = {{"Krum", Json::object({{"byzantine", 2}}), 7},
               {"MultiKrum", Json::object({{"byzantine", 1}}), 5},
               {"Bulyan", Json::object({{"byzantine", 2}}), 11},
               {"Bulyan", Json::object(), 3},
               {"FedAvg", Json::object(), 1}};
  const LayoutPointer layout = flat_layout(3);
  for (const auto& one : cases) {
    SCOPED_TRACE(one.name);
    Clients clients = random_clients(layout, one.least, 3);
    const auto rule = rule_of(one.name, layout, one.parameters);
    EXPECT_EQ(rule->updates_min(), one.least);
    std::vector<float> model = {1, 2, 3};
    EXPECT_TRUE(rule->apply(Context::background(), clients.contributions, model, {}).ok());
    model = {1, 2, 3};
    clients.contributions.pop_back();
    const auto applied = rule->apply(Context::background(), clients.contributions, model, {});
    ASSERT_TRUE(applied.ok()) << applied.error();
    EXPECT_THAT(applied->too_few,
                HasSubstr("at least " + std::to_string(one.least) + " updates, the round has " +
                          std::to_string(one.least - 1)));
    EXPECT_THAT(model, ElementsAre(1, 2, 3));
  }
}

TEST(Rules, LongUpdatesAreQuarantinedWithTheReason) {
  const LayoutPointer layout = flat_layout(1);
  Clients clients{layout, {}, {}};
  const float values[] = {1, 1.5f, 2, 500};
  for (std::size_t i = 0; i < 4; ++i)
    clients.add("c" + std::to_string(3 - i), std::span(values).subspan(i, 1));
  std::vector<float> model(1);
  const auto rule = rule_of("FedAvg", layout);
  auto applied = rule->apply(Context::background(), clients.contributions, model, {}).value();
  ASSERT_EQ(applied.quarantined.size(), 1u);
  EXPECT_EQ(applied.quarantined[0], (Quarantined{"c0", RefusalReason::kNorm,
                                                 "norm 500 is above 10 times the median 1.75"}));
  EXPECT_THAT(model, ElementsAre(1.5f));
  EXPECT_EQ(applied.shares.size(), 3u);

  applied = rule->apply(Context::background(), clients.contributions, model,
                        {.bounds = {.norm_max = 1.2, .norm_factor = 0}})
                .value();
  EXPECT_EQ(applied.quarantined.size(), 3u);
  const auto none = rule->apply(Context::background(), clients.contributions, model,
                                {.bounds = {.norm_max = 0.1}});
  EXPECT_THAT(none.value().too_few, HasSubstr("4 more are quarantined"));
}

TEST(Rules, ClaimedSamplesCountUpToAMultipleOfTheMedian) {
  const LayoutPointer layout = flat_layout(1);
  Clients clients{layout, {}, {}};
  const std::vector<float> one = {1};
  clients.add("a", one, 10);
  clients.add("b", one, 20);
  clients.add("c", one, 1'000'000);
  std::vector<float> model(1);
  const auto rule = rule_of("FedAvg", layout);
  const auto shares = [&](const Bounds& bounds) {
    const auto applied =
        rule->apply(Context::background(), clients.contributions, model, {.bounds = bounds});
    std::vector<double> out;
    for (const Share& share : applied->shares) out.push_back(share.weight);
    return out;
  };
  EXPECT_THAT(shares({}), ElementsAre(10.0 / 230, 20.0 / 230, 200.0 / 230));
  EXPECT_THAT(shares({.weight_factor = 0, .weight_max = 20}), ElementsAre(0.2, 0.4, 0.4));
}

TEST(Rules, ClientsWithoutLossOrControlVariatesAreQuarantined) {
  const LayoutPointer layout = flat_layout(2);
  Clients clients{layout, {}, {}};
  const std::vector<float> delta = {1, 2};
  clients.add("a", delta, 1, {.control = delta});
  clients.add("b", delta);
  clients.contributions[1].loss = NAN;
  std::vector<float> model(2);
  for (const char* name : {"SCAFFOLD", "qFFL"}) {
    const auto applied =
        rule_of(name, layout)->apply(Context::background(), clients.contributions, model, {});
    ASSERT_EQ(applied->quarantined.size(), 1u) << name;
    EXPECT_EQ(applied->quarantined[0].client, "b");
  }
  EXPECT_TRUE(rule_of("SCAFFOLD", layout)->needs_control());
  EXPECT_TRUE(rule_of("qFFL", layout)->needs_loss());
}

TEST(Rules, LossThatWouldOwnOrBreakTheModelIsQuarantined) {
  const LayoutPointer layout = flat_layout(2);
  const auto quarantined = [&](double q, double loss) {
    Clients clients{layout, {}, {}};
    const std::vector<float> delta = {1, 2};
    for (const char* name : {"a", "b", "c", "d"}) clients.add(name, delta);
    clients.contributions[1].loss = 1.5;
    clients.contributions[2].loss = 2;
    clients.contributions[3].loss = loss;
    std::vector<float> model(2);
    const auto applied = rule_of("qFFL", layout, Json::object({{"q", q}}))
                             ->apply(Context::background(), clients.contributions, model, {});
    EXPECT_TRUE(applied.ok()) << q << " " << loss << " " << applied.error();
    std::vector<std::string> out;
    if (!applied.ok()) return out;
    EXPECT_GT(model[0], 0) << q << " " << loss;
    for (const Quarantined& one : applied->quarantined) out.push_back(one.message);
    return out;
  };
  EXPECT_THAT(quarantined(1, 10), IsEmpty());
  EXPECT_THAT(quarantined(1, 1e9), ElementsAre("loss 1e+09 is above 10 times the median 1.75"));
  EXPECT_THAT(quarantined(5, 1e200), ElementsAre("the loss 1e+200 is out of range"));
  EXPECT_THAT(quarantined(0, 1e-320), ElementsAre(HasSubstr("is out of range")));
}

// Without a median, the powers of the loss are the only limit.
TEST(Rules, LossWithPowersThatAreNotFiniteIsQuarantinedBetweenTwoClients) {
  const LayoutPointer layout = flat_layout(1);
  Clients clients{layout, {}, {}};
  const std::vector<float> delta = {1};
  clients.add("a", delta);
  clients.add("b", delta);
  clients.contributions[1].loss = 1e300;
  std::vector<float> model(1);
  const auto applied = rule_of("qFFL", layout, Json::object({{"q", 2}}))
                           ->apply(Context::background(), clients.contributions, model, {});
  ASSERT_TRUE(applied.ok()) << applied.error();
  ASSERT_EQ(applied->quarantined.size(), 1u);
  EXPECT_EQ(applied->quarantined[0].client, "b");
}

TEST(Rules, TwoUpdatesOfOneClientAreRefused) {
  const LayoutPointer layout = flat_layout(1);
  Clients clients{layout, {}, {}};
  const std::vector<float> one = {1};
  clients.add("a", one);
  clients.add("a", one);
  std::vector<float> model(1), longer(2);
  const auto rule = rule_of("FedAvg", layout);
  EXPECT_THAT(
      rule->apply(Context::background(), clients.contributions, model, {}).error().message(),
      HasSubstr("\"a\" has two updates"));
  clients.contributions.pop_back();
  EXPECT_EQ(rule->apply(Context::background(), clients.contributions, longer, {}).error().code(),
            Code::kInvalid);
  const auto other = rule_of("FedAvg", flat_layout(2));
  EXPECT_THAT(
      other->apply(Context::background(), clients.contributions, longer, {}).error().message(),
      HasSubstr("another layout"));
}

TEST(Rules, AStopEndsTheWork) {
  const Clients clients = random_clients(flat_layout(10'000), 5, 1);
  std::stop_source stop;
  stop.request_stop();
  std::vector<float> model(10'000);
  for (const std::string& name : Rule::names()) {
    const auto applied =
        rule_of(name, clients.layout)
            ->apply(Context(stop.get_token()), clients.contributions, model, {.threads = 3});
    EXPECT_EQ(applied.error().code(), Code::kCancelled) << name;
  }
}

TEST(Rules, AModelThatOverflowsIsAnError) {
  const LayoutPointer layout = flat_layout(1);
  Clients clients{layout, {}, {}};
  const std::vector<float> huge = {3e38f};
  clients.add("a", huge);
  std::vector<float> model = {3e38f};
  EXPECT_EQ(rule_of("FedAvg", layout)
                ->apply(Context::background(), clients.contributions, model, {})
                .error()
                .code(),
            Code::kInternal);
}

TEST(Rules, SettingsAreCheckedByName) {
  const LayoutPointer layout = flat_layout(1);
  const auto message = [&](const std::string& json) {
    const auto rule = Rule::make(codec::parse_json(json).value(), layout);
    return rule.ok() ? "" : rule.error().message();
  };
  EXPECT_EQ(message("{}"), "");
  EXPECT_THAT(message(R"({"name":"fedAvg"})"), HasSubstr("did you mean FedAvg?"));
  EXPECT_THAT(message(R"({"name":"Average"})"), HasSubstr("Bulyan, FedAdagrad"));
  EXPECT_THAT(message(R"({"name":"FedAvg","parameters":{"momentum":1}})"), HasSubstr("momentum"));
  EXPECT_THAT(message(R"({"name":"FedAdam","parameters":{"beta1":1}})"), HasSubstr("beta1"));
  EXPECT_THAT(message(R"({"name":"TrimmedMean","parameters":{"trim":0.5}})"), HasSubstr("trim"));
  EXPECT_THAT(message(R"({"name":"Krum","parameters":{"byzantine":-1}})"), HasSubstr("byzantine"));
  EXPECT_THAT(message(R"({"name":"FedAvg","other":1})"), HasSubstr("other"));
}

TEST(Rules, StatesOfOtherRulesOrModelsAreRefused) {
  const auto adam = rule_of("FedAdam", flat_layout(3));
  const std::string state = adam->state().value();
  EXPECT_THAT(rule_of("FedYogi", flat_layout(3))->restore(state).error().message(),
              HasSubstr("FedAdam"));
  EXPECT_THAT(rule_of("FedAdam", flat_layout(4))->restore(state).error().message(),
              HasSubstr("other tensors"));
  EXPECT_FALSE(adam->restore(state.substr(0, state.size() - 1)).ok());
  EXPECT_FALSE(adam->restore("").ok());
  EXPECT_TRUE(adam->restore(state).ok());
}

TEST(Rules, StalenessFollowsFedBuff) {
  EXPECT_EQ(staleness_scale(0), 1);
  EXPECT_EQ(staleness_scale(3), 0.5);
}

TEST(Rules, ModelsWithoutValuesAreFine) {
  const Clients clients = random_clients(flat_layout(0), 5, 1);
  std::vector<float> model;
  for (const std::string& name : Rule::names()) {
    if (name == "SCAFFOLD") continue;  // no control variates, no updates
    const auto applied = rule_of(name, clients.layout)
                             ->apply(Context::background(), clients.contributions, model, {});
    EXPECT_TRUE(applied.ok()) << name << applied.error();
  }
}

}  // namespace rules_test
}  // namespace varda::federated
