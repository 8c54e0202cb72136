// Which state of a collection a list is of: versions, and the pages of one snapshot.
// https://kubernetes.io/docs/reference/using-api/api-concepts/#semantics-for-get-and-list
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "apiserver/internal/outcome.h"
#include "net/url.h"
#include "store/store.h"

namespace varda::apiserver {

/// ?flag, ?flag=1 and ?flag=true say yes.
bool truthy(std::optional<std::string_view> text);

/// A query member that is a whole number; 400 for one that is none.
Outcome<std::optional<std::int64_t>> query_number(const net::Query& query, std::string_view name);

/// ?resourceVersion= as a revision; absent where it is not given, and the largest there is for one beyond. The error is the
/// sentence about what is no number: what code it has differs from verb to verb.
Result<std::optional<store::Revision>> parse_version(const net::Query& query);

/// 504 "Too large resource version" for a revision the store has not reached.
Outcome<void> check_not_future(std::optional<store::Revision> revision, const store::Store& store);

/// The place in a list where its next page begins: the snapshot and the last key before it, relative to the list's prefix.
struct PageStart {
  /// The latest state instead of a snapshot: what an expired token is replaced by.
  static constexpr store::Revision kLatest = -1;
  store::Revision revision = 0;
  std::string after;

  std::string token() const;
  /// 400 for what is no token of a list.
  static Outcome<PageStart> parse(std::string token);
};

struct ListQuery {
  std::size_t limit = 0;   // 0: no limit
  store::Revision at = 0;  // 0: the latest
  std::optional<PageStart> start;

  /// 422 for combinations that mean nothing, 400 for what is malformed, 504 for the future.
  static Outcome<ListQuery> parse(const net::Query& query, const store::Store& store);
};

/// 410 for a list whose state the store does not have any more. `start`: with a token to read on from there in the latest state.
ApiStatus list_expired(const std::optional<PageStart>& start);

/// 422 about ListOptions.
ApiStatus bad_list_options(std::vector<StatusCause> causes);
/// A cause of it.
StatusCause forbidden_option(std::string field, std::string_view why);

}  // namespace varda::apiserver
