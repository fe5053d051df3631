//! What grows with a family, and what does not.

use foldspace_replay::{Name, Size, chain, children};

const MEMORY: u64 = 256 << 20;

#[test]
fn a_chain_of_forks_grows_where_each_fork_makes_an_anon_vma_and_nowhere_else() {
    let mut steps = 0;
    let links = chain(300, MEMORY, || steps += 1).unwrap();
    assert_eq!(steps, 300);
    let of = |name: Name, forks: u32| {
        *links.iter().find(|link| link.size.name == name && link.size.forks == forks).expect("a moment")
    };
    for name in [Name::Before, Name::FirstPatch, Name::BothPatches, Name::Today, Name::Foldspace] {
        let (early, late) = (of(name, 10), of(name, 300));
        assert_eq!(Size { forks: 10, ..late.size }, early.size);
        assert_eq!((late.page.most, late.page.found), (1, 1.0));
    }
    assert_eq!(of(Name::PerFork, 300).size.objects, 301);
    let foldspace = of(Name::Foldspace, 300).size;
    assert_eq!((foldspace.links, foldspace.by_last_fork), (0, 0));
}

#[test]
fn a_page_of_one_of_many_children_or_of_their_parent_is_found_in_one_table() {
    const CHILDREN: u32 = 200;
    let broods = children(CHILDREN, MEMORY, || {}).unwrap();
    let of = |name: Name| broods.iter().find(|brood| brood.size.name == name).expect("everybody is there");
    let foldspace = of(Name::Foldspace);
    assert_eq!((foldspace.childs.most, foldspace.parents.most), (1, 1));
    assert_eq!((foldspace.shared.most, foldspace.shared.found), (u64::from(CHILDREN) + 1, f64::from(CHILDREN) + 1.0));
    // The parent's VMA is linked to by all children: Linux looks at each of them for what is the parent's alone.
    assert_eq!((of(Name::Today).parents.most, of(Name::Today).parents.found), (u64::from(CHILDREN) + 1, 1.0));
    assert_eq!(of(Name::Today).childs.most, 1);
}
