// Rules that hold over all golden cases of all kinds. The golden tests prove that the expectations
// are what the code plans.

#include <algorithm>
#include <fstream>
#include <gtest/gtest.h>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "controllers/testing/golden.h"

namespace varda::controllers {
namespace invariants_test {

using codec::Json;
using testing::golden_cases;
using testing::GoldenCase;

struct Kind {
  const char* folder;
  const char* main;                  // the object that the case is about
  std::vector<const char*> reasons;  // guides with the tables of reasons
  bool has_url;                      // in the status
};

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> all = {
      {"inferencemodel", "model", {"inference-model.md"}, true},
      {"joint", "service", {"joint-inference.md", "inference-model.md"}, true},
      {"workers", "job", {"workers.md", "joint-inference.md", "inference-model.md"}, false},
      {"trainingmodel",
       "training",
       {"training-model.md", "workers.md", "joint-inference.md", "inference-model.md"},
       false},
      {"federatedlearning",
       "job",
       {"federated-learning.md", "training-model.md", "workers.md", "joint-inference.md",
        "inference-model.md"},
       false},
      {"incrementallearning",
       "job",
       {"incremental-learning.md", "training-model.md", "workers.md", "joint-inference.md",
        "inference-model.md"},
       false},
      {"dataset", "dataset", {"datasets.md"}, false},
      {"model", "model", {"models.md"}, false}};
  return all;
}

struct Param {
  const Kind* kind;
  std::string name;
  friend void PrintTo(const Param& param, std::ostream* out) { *out << param.name; }
};

std::vector<Param> all_cases() {
  std::vector<Param> out;
  for (const Kind& kind : kinds())
    for (std::string& name : golden_cases(kind.folder).names()) out.push_back({&kind, name});
  return out;
}

class Invariants : public ::testing::TestWithParam<Param> {
 protected:
  const Kind& kind() const { return *GetParam().kind; }
  const GoldenCase& test() const { return golden_cases(kind().folder).at(GetParam().name); }
  const Json& main() const { return test().given[kind().main]; }

  // Objects of the plan, also of every worker's.
  std::vector<Json> planned() const {
    std::vector<Json> out = test().expect["objects"].as_array();
    for (const auto& [name, worker] : test().expect.as_object())
      for (const Json& object : worker["objects"].as_array()) out.push_back(object);
    return out;
  }
  const Json* find_given(const std::string& uid) const {
    for (const auto& [name, object] : test().given.as_object())
      if (object["metadata"]["uid"].as_string() == uid) return &object;
    return nullptr;
  }
};

// The node that a pod is bound to; "": none yet.
std::string node_of(const Json& pod) {
  const Json& spec = pod["spec"];
  if (!spec["nodeName"].as_string().empty()) return spec["nodeName"].as_string();
  const Json terms = spec["affinity"]["nodeAffinity"]
                         ["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
  for (const Json& term : terms.as_array())
    for (const Json& field : term["matchFields"].as_array())
      for (const Json& value : field["values"].as_array()) return value.as_string();
  return pod["metadata"]["labels"]["edgeai.io/worker-node"].as_string();
}

// "edge0 8080/TCP" of every port that the object takes on its node.
std::vector<std::string> node_ports(const Json& object) {
  std::vector<std::string> out;
  if (object["kind"].as_string() == "InferenceModel") {
    const Json& spec = object["spec"];
    if (spec["deployToLayer"].as_string() == "edge")
      out.push_back(spec["nodeName"].as_string() + " " +
                    std::to_string(spec["servingPort"].as_integer()) + "/TCP");
  }
  if (object["kind"].as_string() != "Pod") return out;
  const Json& spec = object["spec"];
  for (const Json& container : spec["containers"].as_array()) {
    for (const Json& port : container["ports"].as_array()) {
      const Json& number = spec["hostNetwork"].as_bool() ? port["containerPort"] : port["hostPort"];
      if (number.as_integer() != 0)
        out.push_back(node_of(object) + " " + std::to_string(number.as_integer()) + "/" +
                      port["protocol"].string_or("TCP"));
    }
  }
  return out;
}

TEST_P(Invariants, NoTwoPodsTakeOnePortOfANode) {
  std::map<std::string, std::string> taken;
  for (const auto& [name, object] : test().given.as_object()) {
    if (object["kind"].as_string() == "Claim" && object["held"].as_bool())
      taken[object["node"].as_string() + " " + std::to_string(object["port"].as_integer()) +
            "/TCP"] = object["owner"].as_string();
  }
  for (const Json& object : planned()) {
    const std::string name =
        object["kind"].as_string() + " " + object["metadata"]["name"].as_string();
    for (const std::string& port : node_ports(object)) {
      const auto [other, free] = taken.emplace(port, name);
      EXPECT_TRUE(free) << port << " of " << name << " and " << other->second;
    }
  }
}

// The writer makes the object the controller of what it creates (runtime/writer.h). An object that
// the plan means by its uid must have that controller already.
TEST_P(Invariants, EveryChildIsOwned) {
  std::set<std::string> names;
  for (const Json& object : planned()) {
    const Json& metadata = object["metadata"];
    const std::string name = object["kind"].as_string() + " " + metadata["name"].as_string();
    EXPECT_TRUE(names.insert(name).second) << name << " is planned twice";
    EXPECT_FALSE(metadata.contains("ownerReferences")) << name << ": the writer sets the owner";
    const std::string ns = main()["metadata"]["namespace"].string_or("default");
    EXPECT_EQ(metadata["namespace"].string_or(ns), ns) << name << " cannot have an owner elsewhere";
    const std::string& uid = metadata["uid"].as_string();
    if (uid.empty()) continue;
    const Json* live = find_given(uid);
    if (live == nullptr) {  // made by the test, which sets the owner (LivePod)
      EXPECT_EQ(uid, "uid-of-" + metadata["name"].as_string()) << name << " exists nowhere";
      continue;
    }
    bool owned = false;
    for (const Json& owner : (*live)["metadata"]["ownerReferences"].as_array())
      owned = owned || (owner["controller"].as_bool() && owner["kind"] == main()["kind"] &&
                        owner["uid"] == main()["metadata"]["uid"]);
    EXPECT_TRUE(owned) << name << " is kept without being a child";
  }
}

TEST_P(Invariants, ReadyImpliesAUrl) {
  if (!kind().has_url) return;
  const Json& status = test().expect["status"];
  for (const Json& condition : status["conditions"].as_array()) {
    if (condition["type"].as_string() != "Ready" || condition["status"].as_string() != "True")
      continue;
    EXPECT_NE(status["url"].as_string(), "");
  }
}

// Words in backticks in the first column of the tables that begin with "| reason".
std::set<std::string> documented(const char* guide) {
  std::ifstream in(std::filesystem::path(VARDA_TESTDATA) / "../../../docs/guides" / guide);
  EXPECT_TRUE(in.is_open()) << guide;
  std::set<std::string> out;
  bool inside = false;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("| reason")) inside = true;
    if (!line.starts_with("|")) inside = false;
    if (!inside) continue;
    std::istringstream cell(line.substr(1, line.find('|', 1) - 1));
    std::string outside, code;
    while (std::getline(cell, outside, '`') && std::getline(cell, code, '`')) out.insert(code);
  }
  return out;
}

TEST_P(Invariants, EveryReasonIsDocumentedInTheGuide) {
  static std::map<std::string, std::set<std::string>> guides;
  std::set<std::string> known;
  for (const char* guide : kind().reasons) {
    auto& reasons = guides[guide];
    if (reasons.empty()) reasons = documented(guide);
    known.insert(reasons.begin(), reasons.end());
  }
  const auto check = [&](const std::string& reason) {
    EXPECT_TRUE(known.contains(reason))
        << reason << " is in no table of reasons of docs/guides/" << kind().reasons.front();
  };
  const Json& expect = test().expect;
  for (const Json& condition : expect["status"]["conditions"].as_array())
    check(condition["reason"].as_string());
  const auto check_problem = [&](const Json& problem) {
    if (problem.is_object()) check(problem["reason"].as_string());
    if (problem.is_string()) check(problem.as_string().substr(0, problem.as_string().find(':')));
  };
  check_problem(expect["problem"]);
  check_problem(expect["first"]);
  for (const auto& [name, problem] : expect["further"].as_object()) check_problem(problem);
  for (const auto& [name, worker] : expect.as_object()) {
    check_problem(worker["problem"]);
    for (const Json& pod : worker["pods"].as_array()) check_problem(pod["problem"]);
  }
}

INSTANTIATE_TEST_SUITE_P(Case, Invariants, ::testing::ValuesIn(all_cases()), [](const auto& test) {
  return std::string(test.param.kind->folder) + "_" + test.param.name;
});

}  // namespace invariants_test
}  // namespace varda::controllers
