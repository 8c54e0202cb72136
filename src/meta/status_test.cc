#include "meta/status.h"

#include <gtest/gtest.h>

namespace varda::meta {
namespace {

using codec::parse_json;

TEST(ApiStatus, StatusSurvivesARoundTrip) {
  ApiStatus status;
  status.code = 422;
  status.reason = "Invalid";
  status.message = "Dataset.edgeai.io \"d\" is invalid: spec: Required value";
  status.group = "edgeai.io";
  status.kind = "Dataset";
  status.name = "d";
  status.causes = {{"FieldValueRequired", "Required value", "spec"}};
  status.retry_after_seconds = 3;
  const Json json = status.to_json();
  EXPECT_EQ(
      json,
      parse_json(
          R"({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 422,
      "reason": "Invalid", "message": "Dataset.edgeai.io \"d\" is invalid: spec: Required value",
      "details": {"group": "edgeai.io", "kind": "Dataset", "name": "d", "retryAfterSeconds": 3,
                  "causes": [{"reason": "FieldValueRequired", "message": "Required value", "field": "spec"}]}})")
          .value());
  EXPECT_EQ(ApiStatus::from_json(json).to_json(), json);
}

TEST(ApiStatus, ContinueTokenOfAnExpiredListIsKept) {
  ApiStatus status;
  status.code = 410;
  status.list_token = "next";
  EXPECT_EQ(status.to_json().at("metadata/continue").as_string(), "next");
  EXPECT_EQ(ApiStatus::from_json(status.to_json()).list_token, "next");
}

TEST(ApiStatus, DetailsAreOmittedIfAbsent) {
  ApiStatus status;
  status.code = 400;
  status.reason = "BadRequest";
  status.message = "no";
  status.details = false;
  EXPECT_FALSE(status.to_json().contains("details"));
  EXPECT_FALSE(ApiStatus::from_json(status.to_json()).details);
}

TEST(ApiStatus, ReasonTakesPrecedenceOverTheStatusCode) {
  struct Case {
    int code;
    const char* reason;
    Code expected;
  };
  const Case cases[] = {
      {404, "NotFound", Code::kNotFound},
      {409, "AlreadyExists", Code::kAlreadyExists},
      {409, "Conflict", Code::kConflict},
      {409, "", Code::kConflict},
      {410, "Expired", Code::kGone},
      {410, "Gone", Code::kGone},
      {422, "Invalid", Code::kInvalid},
      {400, "BadRequest", Code::kInvalid},
      {401, "Unauthorized", Code::kUnauthenticated},
      {403, "Forbidden", Code::kForbidden},
      {429, "TooManyRequests", Code::kUnavailable},
      {503, "", Code::kUnavailable},
      {502, "", Code::kUnavailable},
      {504, "Timeout", Code::kTimeout},
      {500, "ServerTimeout", Code::kTimeout},
      {500, "InternalError", Code::kInternal},
      {500, "", Code::kInternal},
      {405, "MethodNotAllowed", Code::kUnsupported},
      {413, "RequestEntityTooLarge", Code::kExhausted},
      {418, "", Code::kInvalid},
      {599, "", Code::kInternal},
  };
  for (const Case& c : cases) {
    ApiStatus status;
    status.code = c.code;
    status.reason = c.reason;
    status.message = "m";
    EXPECT_EQ(status.to_error().code(), c.expected) << c.code << " " << c.reason;
  }
}

TEST(ApiStatus, ErrorNamesTheObjectOnce) {
  ApiStatus status;
  status.code = 404;
  status.reason = "NotFound";
  status.kind = "pods";
  status.name = "web";
  status.message = "pods \"web\" not found";
  EXPECT_EQ(status.to_error().message(), "pods \"web\" not found");
  status.message = "gone fishing";
  EXPECT_EQ(status.to_error().message(), "pods \"web\": gone fishing");
  status.message = "";
  EXPECT_EQ(status.to_error().message(), "pods \"web\": NotFound");
}

TEST(ApiStatus, ErrorCodesSurviveARoundTripThroughTheStatus) {
  for (int i = 0; i <= static_cast<int>(Code::kInternal); ++i) {
    const Error error(static_cast<Code>(i), "m");
    const ApiStatus status = ApiStatus::from_error(error);
    EXPECT_GE(status.code, 400);
    EXPECT_FALSE(status.reason.empty());
    const Code back = status.to_error().code();
    const bool merged = error.code() == Code::kExhausted || error.code() == Code::kCorrupt ||
                        error.code() == Code::kCancelled;
    if (!merged) {
      EXPECT_EQ(back, error.code()) << to_string(error.code());
    }
  }
  EXPECT_EQ(ApiStatus::from_error(Error(Code::kGone, "m")).reason, "Expired");
  EXPECT_EQ(ApiStatus::from_error(Error(Code::kExhausted, "m")).retry_after_seconds, 1);
}

}  // namespace
}  // namespace varda::meta
