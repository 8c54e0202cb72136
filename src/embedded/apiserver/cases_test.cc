// The cases of testdata/cases: requests to the API server and Kubernetes' answers. README.md there
// describes the format.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <map>
#include <sstream>

#include "apiserver/testing/in_memory.h"
#include "codec/yaml.h"

namespace varda::apiserver {
namespace {

using codec::Json;

struct Case {
  std::string topic;
  Json file;  // shared by all cases of the topic
  Json steps;
};

struct Named {
  std::string name;
  std::shared_ptr<const Case> what;
};

void PrintTo(const Named& named, std::ostream* out) { *out << named.name; }

std::string content_of(const std::filesystem::path& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

std::vector<Named> all_cases() {
  std::vector<Named> out;
  std::vector<std::filesystem::path> files;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(VARDA_TESTDATA) + "/cases")) {
    if (entry.path().extension() == ".yaml") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  for (const auto& path : files) {
    auto parsed = codec::parse_yaml(content_of(path));
    if (!parsed.ok()) {
      ADD_FAILURE() << path << ": " << parsed.error().message();
      continue;
    }
    for (const auto& [name, steps] : std::as_const(*parsed)["cases"].as_object()) {
      out.push_back({path.stem().string() + "_" + name,
                     std::make_shared<const Case>(Case{path.stem().string(), *parsed, steps})});
    }
  }
  return out;
}

/// Lines of a watch, read on the caller's thread.
class Watch {
 public:
  explicit Watch(net::ClientResponse response) : response_(std::move(response)) {}
  /// Null: the stream has ended.
  Json next() {
    for (;;) {
      if (const std::size_t end = buffer_.find('\n'); end != std::string::npos) {
        Json event = codec::parse_json(buffer_.substr(0, end)).value();
        buffer_.erase(0, end + 1);
        return event;
      }
      auto more = response_.body->read();
      if (!more.ok() || !more->has_value()) return nullptr;
      buffer_ += **more;
    }
  }

 private:
  net::ClientResponse response_;
  std::string buffer_;
};

/// One case on its own server. The server's controllers act only in the step `settle`.
class Conversation {
 public:
  Conversation()
      : ctx_(Context::background().with_timeout(std::chrono::seconds(60))), api_(options()) {
    settle();
  }

  void go(const Json& steps) {
    for (const Json& step : steps.as_array()) {
      SCOPED_TRACE(codec::write_json(step).substr(0, 300));
      take(step);
      if (::testing::Test::HasFailure()) return;  // later steps would fail for the same reason
    }
  }

 private:
  static InMemoryApiServer::Options options() {
    InMemoryApiServer::Options options;
    options.server.controllers = false;
    return options;
  }

  void settle() {
    for (int rounds = 0; !api_.server().step_controllers(); ++rounds)
      ASSERT_LT(rounds, 10'000) << "the controllers find no end";
  }

  // Replaces "${name}", "${name+5}", "${revision}" (the store's) and "${x*300}" (a repeated
  // character).
  std::string filled(std::string_view text) {
    std::string out;
    for (;;) {
      const std::size_t begin = text.find("${");
      const std::size_t end = begin == std::string_view::npos ? begin : text.find('}', begin);
      out += text.substr(0, begin);
      if (end == std::string_view::npos) return out;
      const std::string inner(text.substr(begin + 2, end - begin - 2));
      text.remove_prefix(end + 1);
      const std::size_t sign = inner.find_first_of("+-*");
      const std::string name = inner.substr(0, sign);
      const long number = sign == std::string::npos
                              ? 0
                              : std::stol(inner.substr(sign + (inner[sign] == '-' ? 0 : 1)));
      if (sign != std::string::npos && inner[sign] == '*') {
        for (long i = 0; i < number; ++i) out += name;
        continue;
      }
      std::string value = name == "revision" ? std::to_string(api_.store().revision()) : "";
      if (name != "revision") {
        const auto found = saved_.find(name);
        if (found == saved_.end()) {
          ADD_FAILURE() << "nothing was kept as " << name;
          continue;
        }
        value = found->second;
      }
      out += number == 0 ? value : std::to_string(std::stol(value) + number);
    }
  }

  Json all_filled(const Json& value) {
    if (value.is_string()) return filled(value.as_string());
    if (value.is_array()) {
      Json out = Json::array();
      for (const Json& item : value.as_array()) out.push_back(all_filled(item));
      return out;
    }
    if (!value.is_object()) return value;
    Json out = Json::object();
    for (const auto& [name, member] : value.as_object()) out.set(filled(name), all_filled(member));
    return out;
  }

  void take(const Json& step) {
    if (step.contains("settle")) return settle();
    if (step.contains("compact")) {
      ASSERT_TRUE(api_.store().compact(std::stol(filled(step["compact"].as_string()))).ok());
      return;
    }
    if (step.contains("events")) return read_events(step);
    const store::Revision before = api_.store().revision();
    const std::string line =
        step.contains("watch") ? "GET " + step["watch"].as_string() : step["do"].as_string();
    const std::size_t space = line.find(' ');
    ASSERT_NE(space, std::string::npos) << "a step is `do: METHOD path`";
    net::ClientRequest request;
    request.method = line.substr(0, space);
    request.url = filled(line.substr(space + 1));
    request.headers.add("Accept",
                        step.contains("accept") ? step["accept"].as_string() : "application/json");
    for (const auto& [name, value] : step["headers"].as_object())
      request.headers.add(name, filled(value.as_string()));
    if (step.contains("body") || step.contains("text")) {
      request.body = step.contains("text") ? filled(step["text"].as_string())
                                           : codec::write_json(all_filled(step["body"]));
      request.headers.add("Content-Type",
                          step.contains("type") ? step["type"].as_string() : "application/json");
    }
    if (step.contains("watch")) {
      auto response = api_.transport().send(ctx_, std::move(request));
      ASSERT_TRUE(response.ok()) << response.error().message();
      ASSERT_EQ(response->status, 200);
      const std::string id = step.contains("as") ? step["as"].as_string() : "watch";
      watches_.insert_or_assign(id, std::make_unique<Watch>(std::move(response).value()));
      return;
    }
    auto answer = api_.transport().call(ctx_, std::move(request));
    ASSERT_TRUE(answer.ok()) << answer.error().message();
    check_answer(step, *answer, before);
  }

  void check_answer(const Json& step, const net::HttpClient::Answer& answer,
                    store::Revision before) {
    Json body;
    if (auto parsed = codec::parse_json(answer.body); parsed.ok()) body = std::move(parsed).value();
    const std::string shown = answer.body.substr(0, 1500);
    if (step.contains("status")) {
      EXPECT_EQ(answer.status, step["status"].as_integer()) << shown;
    } else {
      EXPECT_TRUE(answer.status >= 200 && answer.status < 300) << answer.status << " " << shown;
    }
    for (const char* name : {"message", "reason"}) {
      if (step.contains(name)) {
        EXPECT_EQ(body[name].as_string(), filled(step[name].as_string())) << shown;
      }
    }
    if (step.contains("says")) {
      const std::string part = filled(step["says"].as_string());
      EXPECT_NE(answer.body.find(part), std::string::npos) << "no \"" << part << "\" in " << shown;
    }
    check_paths(step, body, shown);
    if (step.contains("names")) {
      std::vector<std::string> names;
      for (const char* list : {"items", "rows"}) {
        for (const Json& item : body[list].as_array()) {
          names.push_back(
              item.at(std::string(list) == "rows" ? "cells/0" : "metadata/name").as_string());
        }
      }
      EXPECT_EQ(names, strings(step["names"])) << shown;
    }
    std::vector<std::string> warnings;
    for (const auto& [name, value] : answer.headers.all()) {
      if (name == "Warning") warnings.push_back(value);
    }
    EXPECT_EQ(warnings, strings(all_filled(step["warnings"])));
    for (const auto& [name, value] : step["header"].as_object()) {
      const auto found = answer.headers.find(name);
      if (value.is_null()) {
        EXPECT_FALSE(found) << name << ": " << *found;
      } else {
        EXPECT_EQ(found.value_or("(none)"), filled(value.as_string())) << name;
      }
    }
    for (const auto& [name, from] : step["keep_header"].as_object()) {
      saved_[name] = answer.headers.find(from.as_string()).value_or("(none)");
    }
    for (const auto& [name, path] : step["keep"].as_object()) {
      const Json& value = body.at(path.as_string());
      EXPECT_FALSE(value.is_null()) << "nothing at " << path.as_string() << " in " << shown;
      saved_[name] = value.is_string() ? value.as_string() : codec::write_json(value);
    }
    if (step.contains("writes")) {
      EXPECT_EQ(api_.store().revision() - before, step["writes"].as_integer());
    }
  }

  void check_paths(const Json& expected, const Json& body, const std::string& shown) {
    for (const auto& [path, value] : expected["has"].as_object())
      EXPECT_EQ(codec::write_json(body.at(path)), codec::write_json(all_filled(value)))
          << path << " in " << shown;
    for (const Json& path : expected["lacks"].as_array()) {
      const std::string& text = path.as_string();
      const std::size_t slash = text.rfind('/');
      const Json& holder = slash == std::string::npos ? body : body.at(text.substr(0, slash));
      EXPECT_FALSE(holder.contains(slash == std::string::npos ? text : text.substr(slash + 1)))
          << text << " in " << shown;
    }
  }

  // Reads the next events of a watch, each "TYPE name" or {type, has, lacks}. `end: true`: the
  // stream must end then.
  void read_events(const Json& step) {
    const std::string id = step.contains("of") ? step["of"].as_string() : "watch";
    ASSERT_TRUE(watches_.contains(id));
    Watch& watch = *watches_[id];
    for (const Json& expected : step["events"].as_array()) {
      const Json event = watch.next();
      ASSERT_FALSE(event.is_null()) << "the stream ended before " << codec::write_json(expected);
      const std::string shown = codec::write_json(event).substr(0, 1500);
      if (expected.is_string()) {
        EXPECT_EQ(event["type"].as_string() + " " + event.at("object/metadata/name").as_string(),
                  expected.as_string())
            << shown;
        continue;
      }
      EXPECT_EQ(event["type"].as_string(), expected["type"].as_string()) << shown;
      check_paths(expected, event["object"], shown);
    }
    if (step["end"].as_bool()) {
      const Json event = watch.next();
      EXPECT_TRUE(event.is_null()) << codec::write_json(event);
    }
  }

  static std::vector<std::string> strings(const Json& list) {
    std::vector<std::string> out;
    for (const Json& item : list.as_array()) out.push_back(item.as_string());
    return out;
  }

  const Context ctx_;
  InMemoryApiServer api_;
  std::map<std::string, std::string> saved_;
  std::map<std::string, std::unique_ptr<Watch>> watches_;
};

class ApiCases : public ::testing::TestWithParam<Named> {};

TEST_P(ApiCases, RequestsAreAnsweredLikeKubernetes) {
  const Case& what = *GetParam().what;
  Conversation conversation;
  conversation.go(what.file["given"]);
  ASSERT_FALSE(HasFailure()) << "in what is given";
  conversation.go(what.steps);
}

INSTANTIATE_TEST_SUITE_P(Of, ApiCases, ::testing::ValuesIn(all_cases()),
                         [](const auto& one) { return one.param.name; });

}  // namespace
}  // namespace varda::apiserver
