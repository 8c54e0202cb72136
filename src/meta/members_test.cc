#include "meta/members.h"

#include <gtest/gtest.h>

#include "base/rng.h"

namespace varda::meta {
namespace {

// Few members are searched linearly, many are indexed; both equal Json's own functions.
TEST(MemberEditor, EditorEqualsJsonFunctionsForAnyMemberCount) {
  const auto rng = seeded_rng(7);
  for (const std::size_t names : {3u, 16u, 17u, 200u}) {
    Json plain = Json::object();
    for (std::size_t i = 0; i < names; ++i)
      plain.set("n" + std::to_string(i), static_cast<std::int64_t>(i));
    Json edited = plain;
    {
      MemberEditor editor(edited);
      for (int step = 0; step < 600; ++step) {
        const std::string name = "n" + std::to_string(rng->below(2 * names));
        switch (rng->below(3)) {
          case 0:
            plain.set(name, step);
            editor.set(name, step);
            break;
          case 1:
            plain.erase(name);
            editor.remove(name);
            break;
          default: {
            const Json* expected = std::as_const(plain).find(name);
            const Json* found = editor.find(name);
            ASSERT_EQ(found == nullptr, expected == nullptr) << name;
            if (found != nullptr) {
              EXPECT_EQ(*found, *expected);
            }
          }
        }
      }
    }
    EXPECT_EQ(codec::write_json(edited), codec::write_json(plain))
        << names << " names, in the same order";
  }
}

TEST(MemberIndex, FindReturnsOnlyExistingMembers) {
  for (const int names : {0, 1, 16, 17, 500}) {
    Json object = Json::object();
    for (int i = 0; i < names; ++i) object.set("n" + std::to_string(i), i);
    MemberIndex index(object);
    for (int i = 0; i < names; ++i) {
      ASSERT_TRUE(index.contains("n" + std::to_string(i)));
      EXPECT_EQ(index.find("n" + std::to_string(i))->as_integer(), i);
    }
    EXPECT_EQ(index.find("other"), nullptr);
  }
  EXPECT_EQ(MemberIndex(Json("text")).find("a"), nullptr);
}

}  // namespace
}  // namespace varda::meta
