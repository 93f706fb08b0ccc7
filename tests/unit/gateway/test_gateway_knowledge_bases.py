"""Knowledge bases over HTTP."""

from __future__ import annotations


def test_a_knowledge_base_is_made_listed_and_found_by_id_and_name(api):
    made = api.http.post("/v1/knowledge-bases", json={"name": "手册", "description": "d"}, headers=api.acme)
    assert made.status_code == 201
    assert made.headers["location"] == f"/v1/knowledge-bases/{made.json()['id']}"
    for name in (made.json()["id"], "手册"):
        found = api.http.get(f"/v1/knowledge-bases/{name}", headers=api.acme).json()
        assert found == {**made.json(), "documents": {}}
    listed = api.http.get("/v1/knowledge-bases", headers=api.acme).json()
    assert listed == {"items": [made.json()], "next": None}


def test_a_taken_name_is_a_conflict_and_another_tenants_is_free(api):
    api.http.post("/v1/knowledge-bases", json={"name": "handbook"}, headers=api.acme)
    again = api.http.post("/v1/knowledge-bases", json={"name": "handbook"}, headers=api.acme)
    assert (again.status_code, again.json()["code"]) == (409, "duplicate_name")
    assert api.http.post("/v1/knowledge-bases", json={"name": "handbook"}, headers=api.umbrella).status_code == 201


def test_lists_are_paged_without_gaps_or_repeats(api):
    made = {
        api.http.post("/v1/knowledge-bases", json={"name": f"kb{n}"}, headers=api.acme).json()["id"] for n in range(7)
    }
    seen, after = [], ""
    while after is not None:
        page = api.http.get(f"/v1/knowledge-bases?limit=3&after={after}", headers=api.acme).json()
        seen += [item["id"] for item in page["items"]]
        after = page["next"]
    assert len(seen) == 7
    assert set(seen) == made
