// The checker must detect errors: each test breaks a good history in one way.
#include "checker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace varda::linearizability {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Kind = Operation::Kind;
using Outcome = Operation::Outcome;
using Type = Event::Type;

const std::string kKey = "default/a";

Object object(Revision revision, Fields fields, std::string uid = "u1") {
  return {.key = kKey, .uid = std::move(uid), .revision = revision, .fields = std::move(fields)};
}

Operation operation(Kind kind, Tick invoked, Tick returned, Object result, Fields wanted = {},
                    Revision lock = 0) {
  Operation op;
  op.kind = kind;
  op.invoked = invoked;
  op.returned = returned;
  op.key = kKey;
  op.object = std::move(result);
  op.wanted = std::move(wanted);
  op.revision_lock = lock;
  return op;
}

Operation refused(Kind kind, Tick invoked, Tick returned, Outcome outcome, Revision lock = 0) {
  Operation op = operation(kind, invoked, returned, {}, {}, lock);
  op.outcome = outcome;
  return op;
}

Event event(Type type, const Object& object, Tick received = 100) {
  return {.type = type, .object = object, .received = received};
}

/// Created, patched by two clients concurrently, read in between, listed, a stale replacement
/// rejected, deleted, not found, created again.
History good() {
  const Object first = object(11, {{"w", "1"}}), second = object(13, {{"w", "1"}, {"p1", "x"}}),
               third = object(14, {{"w", "1"}, {"p1", "x"}, {"p2", "y"}}),
               deleted = object(17, third.fields), again = object(20, {{"w", "2"}}, "u2");
  History out;
  out.begin = 10;
  Operation list = operation(Kind::kList, 8, 9, {});
  list.key = "default";
  list.revision = 15;
  list.items = {third};
  Operation removal = operation(Kind::kDelete, 12, 13,
                                {.key = kKey, .uid = "u1", .revision = 0, .fields = {}}, {}, 14);
  out.operations = {
      operation(Kind::kCreate, 1, 2, first, first.fields),
      operation(Kind::kPatch, 3, 6, second, {{"p1", "x"}}),
      operation(Kind::kPatch, 4, 7, third, {{"p2", "y"}}),
      operation(Kind::kGet, 5, 8, second),
      list,
      refused(Kind::kReplace, 10, 11, Outcome::kConflict, 13),
      removal,
      refused(Kind::kGet, 14, 15, Outcome::kNotFound),
      operation(Kind::kCreate, 16, 17, again, again.fields),
      refused(Kind::kCreate, 18, 19, Outcome::kExists),
  };
  out.log = {event(Type::kAdded, first), event(Type::kModified, second),
             event(Type::kModified, third), event(Type::kDeleted, deleted),
             event(Type::kAdded, again)};
  out.watches = {{.ns = "default",
                  .phase = "",
                  .after = 13,
                  .events = {event(Type::kModified, third), event(Type::kDeleted, deleted)}}};
  return out;
}

/// The good history, broken by `change`.
template <typename Change>
History broken(Change change) {
  History history = good();
  change(history);
  return history;
}

TEST(Checker, CorrectHistoryHasNoFindings) { EXPECT_THAT(check(good()), IsEmpty()); }

TEST(Checker, LostUpdateIsDetected) {
  // Both patches are acknowledged, but the second ignores the first.
  const History history = broken([](History& h) {
    h.operations[2].object.fields.erase("p1");
    h.log[2].object.fields.erase("p1");
    h.log[3].object.fields.erase("p1");
    h.operations[4].items[0].fields.erase("p1");
    h.watches[0].events[0].object.fields.erase("p1");
    h.watches[0].events[1].object.fields.erase("p1");
  });
  EXPECT_THAT(check_keys(history), Contains(HasSubstr("no order")));
}

TEST(Checker, AcknowledgedWriteMissingFromTheLogIsDetected) {
  const History history = broken([](History& h) { h.log.erase(h.log.begin() + 4); });
  EXPECT_THAT(check_revisions(history), Contains(HasSubstr("lost: ")));
}

TEST(Checker, StaleReadIsDetectedByBothChecks) {
  // A read of the older state begins after a list has returned a newer one.
  const History history = broken([](History& h) {
    h.operations[3].invoked = 10;
    h.operations[3].returned = 11;
  });
  EXPECT_THAT(check_keys(history), Contains(HasSubstr("no order")));
  EXPECT_THAT(check_revisions(history), Contains(HasSubstr("fits to no state since revision 15")));
}

TEST(Checker, ReadOfTheFutureIsDetected) {
  const History history = broken([](History& h) {
    h.operations[3].invoked = 2;
    h.operations[3].returned = 3;
    h.operations[1].invoked = 4;
    h.operations[2].invoked = 5;
  });
  EXPECT_THAT(check_keys(history), Contains(HasSubstr("no order")));
  EXPECT_THAT(check_revisions(history), Not(IsEmpty()));
}

TEST(Checker, StaleAbsenceIsDetectedByBothChecks) {
  const History history = broken([](History& h) {
    h.operations[7].invoked = 20;
    h.operations[7].returned = 21;
  });
  EXPECT_THAT(check_keys(history), Contains(HasSubstr("no order")));
  EXPECT_THAT(check_revisions(history), Contains(HasSubstr("fits to no state")));
}

TEST(Checker, StaleWriteDespiteAnOptimisticLockIsDetected) {
  const History history = broken([](History& h) { h.operations[6].revision_lock = 13; });
  EXPECT_THAT(check_keys(history), Contains(HasSubstr("no order")));
}

TEST(Checker, UnjustifiedConflictIsDetected) {
  const History history = broken([](History& h) { h.operations[5].revision_lock = 14; });
  EXPECT_THAT(check_keys(history), Contains(HasSubstr("no order")));
}

TEST(Checker, TwoCreationsOfOneNameAreDetected) {
  const History history = broken([](History& h) {
    h.operations[9].outcome = Outcome::kOk;
    h.operations[9].object = object(21, {{"w", "3"}}, "u3");
    h.operations[9].wanted = {{"w", "3"}};
    h.log.push_back(event(Type::kAdded, h.operations[9].object));
  });
  EXPECT_THAT(check_keys(history), Contains(HasSubstr("no order")));
  EXPECT_THAT(check_revisions(history), Contains(HasSubstr("does not fit")));
}

TEST(Checker, RealTimeViolationAcrossObjectsIsDetected) {
  // Another object, written after the second creation ended, has an older revision. Each object is
  // consistent by itself.
  const History history = broken([](History& h) {
    Object other = object(19, {{"w", "9"}}, "u9");
    other.key = "default/b";
    Operation op = operation(Kind::kCreate, 30, 31, other, other.fields);
    op.key = other.key;
    h.operations.push_back(op);
    h.log.insert(h.log.begin() + 4, event(Type::kAdded, other));
  });
  EXPECT_THAT(check_keys(history), IsEmpty());
  EXPECT_THAT(check_revisions(history), Contains(HasSubstr("fits to no state since revision 20")));
}

TEST(Checker, OneRevisionForTwoWritesIsDetected) {
  const History history =
      broken([](History& h) { h.operations[2].object = h.operations[1].object; });
  EXPECT_THAT(check_revisions(history), Contains(HasSubstr("two writes were acknowledged")));
}

TEST(Checker, ListThatIsNoSnapshotIsDetected) {
  // One of two concurrently written objects is missing: each alone would be valid.
  const History history = broken([](History& h) {
    Object other = object(12, {{"w", "9"}}, "u9");
    other.key = "default/b";
    Operation op = operation(Kind::kCreate, 7, 30, other, other.fields);
    op.key = other.key;
    h.operations.push_back(op);
    h.log.insert(h.log.begin() + 1, event(Type::kAdded, other));
  });
  EXPECT_THAT(check_keys(history), IsEmpty());
  EXPECT_THAT(check_revisions(history),
              Contains(HasSubstr("the list at revision 15 is not the state")));
}

TEST(Checker, ListOfThePastIsDetected) {
  const History history = broken([](History& h) {
    h.operations[4].revision = 13;
    h.operations[4].items = {h.operations[1].object};
  });
  EXPECT_THAT(check_revisions(history), Contains(HasSubstr("is older than 14")));
}

TEST(Checker, DuplicatedEventIsDetected) {
  const History history = broken([](History& h) {
    h.watches[0].events.insert(h.watches[0].events.begin(), h.watches[0].events[0]);
  });
  EXPECT_THAT(check_revisions(history), Contains(HasSubstr("where DELETED")));
}

TEST(Checker, ReorderedEventsAreDetected) {
  const History history =
      broken([](History& h) { std::swap(h.watches[0].events[0], h.watches[0].events[1]); });
  EXPECT_THAT(check_revisions(history), Contains(HasSubstr("where MODIFIED")));
}

TEST(Checker, MissingEventIsDetected) {
  const History history =
      broken([](History& h) { h.watches[0].events.erase(h.watches[0].events.begin()); });
  EXPECT_THAT(check_revisions(history), Contains(HasSubstr("where MODIFIED")));
}

TEST(Checker, EventOfTheWrongTypeIsDetected) {
  const History history = broken([](History& h) { h.watches[0].events[0].type = Type::kAdded; });
  EXPECT_THAT(check_revisions(history), Contains(HasSubstr("where MODIFIED")));
}

TEST(Checker, EventBeforeTheStartOfItsWatchIsDetected) {
  const History history = broken([](History& h) { h.watches[0].after = 14; });
  EXPECT_THAT(check_revisions(history), Contains(HasSubstr("watch after 14: MODIFIED")));
}

TEST(Checker, PhantomIsDetected) {
  const History history = broken([](History& h) {
    h.log.push_back(event(Type::kModified, object(22, {{"w", "nobody"}}, "u2")));
    h.watches[0].after = 20;
    h.watches[0].events = {h.log.back()};
  });
  EXPECT_THAT(check_revisions(history), Contains(HasSubstr("phantom: ")));
  EXPECT_THAT(check_revisions(broken([](History& h) {
                h.watches[0].events.push_back(event(Type::kAdded, object(30, {})));
              })),
              Not(IsEmpty()));
}

TEST(Checker, ReorderedLogIsDetected) {
  const History history = broken([](History& h) { std::swap(h.log[1], h.log[2]); });
  EXPECT_THAT(check_revisions(history), Contains(HasSubstr("comes after revision 14")));
}

TEST(Checker, EventBeforeItsWriteIsDetected) {
  const History history = broken([](History& h) { h.log[4].received = 15; });
  EXPECT_THAT(check_revisions(history), Contains(HasSubstr("before anybody wrote it")));
}

TEST(Checker, BookmarkThatSkipsAnEventIsDetected) {
  const History history = broken([](History& h) {
    Object mark;
    mark.revision = 17;
    h.watches[0].events.insert(h.watches[0].events.begin() + 1, event(Type::kBookmark, mark));
  });
  EXPECT_THAT(check_revisions(history), Contains(HasSubstr("passes over default/a@17")));
}

TEST(Checker, WatchWithASelectorIsChecked) {
  const Object in = object(11, {{"phase", "x"}}), out = object(12, {{"phase", "y"}}),
               back = object(13, {{"phase", "x"}});
  History history;
  history.begin = 10;
  history.operations = {operation(Kind::kCreate, 1, 2, in, in.fields),
                        operation(Kind::kPatch, 3, 4, out, {{"phase", "y"}}),
                        operation(Kind::kPatch, 5, 6, back, {{"phase", "x"}})};
  history.log = {event(Type::kAdded, in), event(Type::kModified, out),
                 event(Type::kModified, back)};
  history.watches = {
      {.ns = "",
       .phase = "x",
       .after = 10,
       .events = {event(Type::kAdded, in), event(Type::kDeleted, out), event(Type::kAdded, back)}}};
  EXPECT_THAT(check(history), IsEmpty());
  history.watches[0].events[2].type = Type::kModified;
  EXPECT_THAT(check(history), Contains(HasSubstr("where ADDED")));
}

}  // namespace
}  // namespace varda::linearizability
